-- Beats of a fleet in turn, for wrk: FLEET ONE_IN
--
-- FLEET is what benchmarks.fleet wrote. ONE_IN is 0 when no beat changes anything, else every
-- ONE_IN-th beat of a worker has another number of sessions than the one before. A beat's text is
-- made from its worker's number when it is sent: a million workers take no more room than ten.

local NUMBER, SESSIONS, KEY = "######", "1000", "KEY"
local parts, keys = {}, {}
local workers, beating, stride, one_in
local place, pass = -1, 1

local function read(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return table.remove(lines, 1), table.remove(lines, 1), lines
end

local function split(text, ...)
  for _, mark in ipairs({...}) do
    local first, last = text:find(mark, 1, true)
    parts[#parts + 1] = text:sub(1, first - 1)
    text = text:sub(last + 1)
  end
  parts[#parts + 1] = text
end

function init(args)
  local template, numbers
  template, numbers, keys = read(args[1])
  workers, beating, stride = numbers:match("(%d+) (%d+) (%d+)")
  workers, beating, stride = tonumber(workers), tonumber(beating), tonumber(stride)
  one_in = tonumber(args[2])
  -- wrk.format counts the length: every mark is as long as what takes its place, but for the key's.
  local text = wrk.format("POST", "/v1/agents/heartbeat", {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer " .. KEY,
  }, template)
  split(text, KEY, NUMBER, '"active_sessions": ' .. SESSIONS, NUMBER)
  parts[3] = parts[3] .. '"active_sessions": '
end

function request()
  place = place + 1
  if place == beating then place, pass = 0, pass + 1 end
  local n = place * stride % workers
  local number = string.format("%06d", n)
  local sessions = SESSIONS
  if one_in > 0 then sessions = SESSIONS + math.floor((place % one_in + pass) / one_in) end
  return parts[1] .. keys[n % #keys + 1]
    .. parts[2] .. number .. parts[3] .. sessions .. parts[4] .. number .. parts[5]
end

function done(summary)
  local e = summary.errors
  io.write(string.format(
    '{"requests": %d, "microseconds": %d, "failed": %d}\n',
    summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout
  ))
end
