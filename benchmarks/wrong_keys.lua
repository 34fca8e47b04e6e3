-- Beats with keys that nobody was given, for wrk: IDS SEED
--
-- IDS is a file of public parts, one a line: each key then has one of those and a wrong secret. If
-- it is empty, the public part is drawn as well. No key comes twice.

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
local ID, REST = 8, 24
local BODY = '{"agent_id": "stranger", "agent_name": "stranger", "status": "idle"}'
local ids = {}

function init(args)
  for line in io.lines(args[1]) do ids[#ids + 1] = line end
  math.randomseed(tonumber(args[2]))
end

local function drawn(length)
  local letters = {}
  for n = 1, length do
    local place = math.random(#ALPHABET)
    letters[n] = ALPHABET:sub(place, place)
  end
  return table.concat(letters)
end

function request()
  local id = #ids > 0 and ids[math.random(#ids)] or drawn(ID)
  local headers = {
    ["Authorization"] = "Bearer vk_" .. id .. drawn(REST),
    ["Content-Type"] = "application/json",
  }
  return wrk.format("POST", "/v1/agents/heartbeat", headers, BODY)
end

function done(summary)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "microseconds": %d, "refused": %d, "failed": %d}\n',
    summary.requests, summary.duration, e.status, e.connect + e.read + e.write + e.timeout
  ))
end
