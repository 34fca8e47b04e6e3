-- Beats of the whole fleet in turn, for wrk: FLEET WORKERS ONE_IN
--
-- FLEET is what benchmarks.fleet wrote. ONE_IN is 0 when no beat changes anything, else every
-- ONE_IN-th beat of a worker has another number of sessions than the one before.

local NUMBER, SESSIONS = "#####", "1000"
local before, after = {}, {}
local workers, one_in
local place, pass = -1, 1

local function read(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return table.remove(lines, 1), lines
end

function init(args)
  local template, keys = read(args[1])
  workers, one_in = tonumber(args[2]), tonumber(args[3])
  for n = 0, workers - 1 do
    local headers = {
      ["Authorization"] = "Bearer " .. keys[n % #keys + 1],
      ["Content-Type"] = "application/json",
    }
    local body = template:gsub(NUMBER, string.format("%05d", n))
    local text = wrk.format("POST", "/v1/agents/heartbeat", headers, body)
    local first, last = text:find('"active_sessions": ' .. SESSIONS, 1, true)
    before[n] = text:sub(1, last - #SESSIONS)
    after[n] = text:sub(last + 1)
  end
end

function request()
  place = place + 1
  if place == workers then place, pass = 0, pass + 1 end
  local sessions = SESSIONS
  if one_in > 0 then sessions = SESSIONS + math.floor((place % one_in + pass) / one_in) end
  return before[place] .. sessions .. after[place]
end

function done(summary)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "microseconds": %d, "failed": %d}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout
  ))
end
