-- What scripts see of Lua: the globals of Redis 7.0, protected, and errors as Redis passes them on.
--
-- Runs once per machine. Its argument is a table of the host's functions; it returns the table
-- behind the globals, the globals, the runner, and the proxies that must stay empty.
local host = ...

local raw_next, raw_rawget, raw_rawset, raw_setmetatable = next, rawget, rawset, setmetatable
local raw_pcall, raw_xpcall, raw_loadstring = pcall, xpcall, loadstring
local raw_resume, raw_collect, byte, concat = coroutine.resume, collectgarbage, string.byte, table.concat
local error, select, tostring, type = error, select, tostring, type
local stopped, plain, where, charge = host.stopped, host.plain, host.where, host.charge

local READONLY = "Attempt to modify a readonly table"

-- The tables behind proxies. A proxy is empty, so that every write to it is seen.
local backings, proxies = {}, {}
local sealed = {}

local function refuse()
  error(READONLY, 2)
end

local function protect(backing)
  local proxy = {}
  backings[proxy] = backing
  proxies[#proxies + 1] = proxy
  return raw_setmetatable(proxy, { __index = backing, __newindex = refuse, __metatable = sealed })
end

backings[sealed] = {}
proxies[#proxies + 1] = sealed
raw_setmetatable(sealed, { __newindex = refuse, __metatable = sealed })

local function expect_table(value, place, name)
  if type(value) ~= "table" then
    error("bad argument #" .. place .. " to '" .. name .. "' (table expected, got " .. type(value) .. ")", 3)
  end
end

local base = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  rawequal = rawequal,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
}

function base.next(t, key)
  expect_table(t, 1, "next")
  return raw_next(backings[t] or t, key)
end

function base.pairs(t)
  expect_table(t, 1, "pairs")
  local backing = backings[t]
  if backing then
    return function(_, key)
      return raw_next(backing, key)
    end, t, nil
  end
  return raw_next, t, nil
end

function base.rawget(t, key)
  expect_table(t, 1, "rawget")
  return raw_rawget(backings[t] or t, key)
end

function base.rawset(t, key, value)
  expect_table(t, 1, "rawset")
  if backings[t] then
    error(READONLY, 0)
  end
  return raw_rawset(t, key, value)
end

function base.setmetatable(t, metatable)
  expect_table(t, 1, "setmetatable")
  if metatable ~= nil and type(metatable) ~= "table" then
    error("bad argument #2 to 'setmetatable' (nil or table expected)", 2)
  end
  if backings[t] then
    error(READONLY, 0)
  end
  return raw_setmetatable(t, metatable)
end

-- A script that is stopped goes on nowhere, whatever it catches.
local function settle(ok, ...)
  if stopped() then
    error("stopped", 0)
  end
  if ok then
    return true, ...
  end
  local found = plain((...))
  if type(found) == "table" then
    local text = raw_rawget(found, "err")
    if type(text) == "string" or type(text) == "number" then
      found = text
    end
  end
  return false, found
end

local function as_it_is(ok, ...)
  if stopped() then
    error("stopped", 0)
  end
  if ok then
    return true, ...
  end
  return false, plain((...))
end

function base.pcall(...)
  return settle(raw_pcall(...))
end

function base.xpcall(f, handler)
  return as_it_is(raw_xpcall(f, function(found)
    if stopped() then
      return found
    end
    return handler(plain(found))
  end))
end

-- Compiled code is not checked by Lua, so only text is taken.
function base.loadstring(text, name)
  if type(text) ~= "string" and type(text) ~= "number" then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ")", 2)
  end
  text = tostring(text)
  charge(#text)
  if byte(text) == 27 then
    return nil, "precompiled code is not allowed"
  end
  return raw_loadstring(text, name)
end

function base.load(read, name)
  if type(read) ~= "function" then
    error("bad argument #1 to 'load' (function expected, got " .. type(read) .. ")", 2)
  end
  local pieces = {}
  while true do
    local piece = read()
    if piece == nil or piece == "" then
      break
    end
    if type(piece) ~= "string" then
      return nil, "reader function must return a string"
    end
    pieces[#pieces + 1] = piece
  end
  return base.loadstring(concat(pieces), name or "=(load)")
end

-- The collector is the host's: only the question for the memory is answered.
function base.collectgarbage(option)
  if option == "count" then
    return raw_collect("count")
  end
  return 0
end

function base.gcinfo()
  return raw_collect("count")
end

local function copied(from)
  local to = {}
  for name, value in raw_next, from do
    to[name] = value
  end
  return to
end

local string_library = copied(string)
for name, counted in raw_next, host.strings do
  string_library[name] = counted
end
local coroutine_library = copied(coroutine)
function coroutine_library.resume(...)
  return as_it_is(raw_resume(...))
end
local math_library = copied(math)
math_library.random, math_library.randomseed = host.random, host.randomseed

getmetatable("").__index = string_library
getmetatable("").__metatable = protect({ __index = protect(string_library) })

local libraries = {
  string = string_library,
  coroutine = coroutine_library,
  math = math_library,
  table = copied(table),
  cjson = host.cjson,
  cmsgpack = host.cmsgpack,
  bit = host.bit,
  struct = host.struct,
}
for name, library in raw_next, libraries do
  base[name] = protect(library)
end

-- What `redis` is to scripts, to functions, and while a library is loaded.
local redis = { script = protect(host.script), call = protect(host.call), load = protect(host.load) }

raw_setmetatable(base, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
raw_setmetatable(host.load, getmetatable(base))

local globals = protect(base)
base._G = globals

-- Makes of what was raised a table with the text, and where it was raised.
local function handler(found)
  if stopped() then
    return found
  end
  found = plain(found)
  if type(found) ~= "table" then
    found = { err = "ERR " .. tostring(found) }
  end
  local source, line = where()
  if source then
    raw_rawset(found, "source", source)
    raw_rawset(found, "line", line)
  end
  return found
end

local function run(f, first, second)
  return raw_xpcall(function()
    return f(first, second)
  end, handler)
end

return base, globals, run, redis, proxies
