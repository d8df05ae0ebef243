-- Maps lines of Envoy's log to events of ECS 9, for Fluent Bit: see fluent-bit.yaml. It says the
-- same as crates/cli/src/export, which a test compares.

-- Yours: false, if no access log like that of envoy.yaml is read. Then calls come from the guard's
-- lines, which are those that it refused.
local HAS_ACCESS_LOG = true

local DROP, CHANGED = -1, 2

local EVENTS = {
  ["subject_token.created"] = {category = {"iam"}, type = {"creation"}, acts_as = false, dataset = "audit"},
  ["subject_token.refused"] = {category = {"iam"}, type = {"creation"}, acts_as = false, dataset = "audit"},
  ["subject_token.cancelled"] = {category = {"iam"}, type = {"deletion"}, acts_as = false, dataset = "audit"},
  ["subject_token.cancellation_refused"] = {category = {"iam"}, type = {"deletion"}, acts_as = false, dataset = "audit"},
  ["subject_token.shown"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["subject_token.show_refused"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["token_exchange.succeeded"] = {category = {"authentication", "session"}, type = {"start"}, acts_as = true, dataset = "audit"},
  ["token_exchange.refused"] = {category = {"authentication", "session"}, type = {"start"}, acts_as = true, dataset = "audit"},
  ["approval.requested"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approval.given"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approval.refused"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approval.not_given"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approval.denied"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approval.not_denied"] = {category = {"iam"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["approvals.listed"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["approvals.list_refused"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["break_glass.used"] = {category = {"iam"}, type = {"creation"}, acts_as = false, dataset = "audit"},
  ["impersonations.listed"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["impersonations.list_refused"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["impersonations.ended"] = {category = {"session"}, type = {"end"}, acts_as = false, dataset = "audit"},
  ["impersonation.revoked"] = {category = {"session"}, type = {"end"}, acts_as = false, dataset = "audit"},
  ["impersonation.revocation_refused"] = {category = {"session"}, type = {"end"}, acts_as = false, dataset = "audit"},
  ["impersonation.revocation_ignored"] = {category = {"session"}, type = {"end"}, acts_as = false, dataset = "audit"},
  ["token.introspected"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["token.introspection_refused"] = {category = {"iam"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["security_event.received"] = {category = {"session"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["security_event.refused"] = {category = {"session"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["configuration.loaded"] = {category = {"configuration"}, type = {"change"}, acts_as = false, dataset = "audit"},
  ["impersonated_request.allowed"] = {category = {"api", "web"}, type = {"access"}, acts_as = true, dataset = "access"},
  ["impersonated_request.refused"] = {category = {"api", "web"}, type = {"access", "denied"}, acts_as = true, dataset = "access"},
  ["impersonated_request.reported"] = {category = {"api"}, type = {"info"}, acts_as = true, dataset = "access"},
  ["alarm:subject_token.replayed"] = {category = {"intrusion_detection"}, type = {"info"}, acts_as = false, dataset = "audit"},
  ["alarm:break_glass.used"] = {category = {"iam"}, type = {"creation"}, acts_as = false, dataset = "audit"},
}
-- The end of the table.
local FAMILIES = {
  "subject_token.",
  "token_exchange.",
  "impersonation.",
  "impersonations.",
  "impersonated_request.",
  "token.introspect",
  "approval.",
  "approvals.",
  "break_glass.",
  "security_event.",
  "configuration.",
}

local function is_known(event)
  for _, family in ipairs(FAMILIES) do
    if event:sub(1, #family) == family then return true end
  end
  return false
end

local function is_text(value)
  return type(value) == "string" and value ~= ""
end

-- Takes a member that is a text. Another value stays.
local function take(members, member)
  local value = members[member]
  if not is_text(value) then return nil end
  members[member] = nil
  return value
end

local function is_ip(text)
  local parts = {text:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")}
  if #parts == 4 then
    for _, part in ipairs(parts) do
      if tonumber(part) > 255 or (#part > 1 and part:sub(1, 1) == "0") then return false end
    end
    return true
  end
  return text:find("^[%x:]*:[%x:]*:[%x:.]*$") ~= nil
end

-- Takes a whole number, which Envoy may write as a text.
local function number(members, member)
  local value = members[member]
  if type(value) == "string" and value:find("^%d+$") then value = tonumber(value) end
  if type(value) ~= "number" then return nil end
  members[member] = nil
  return value
end

-- Called before the object is parsed, because its members have no order afterwards.
function mark(tag, timestamp, record)
  local object = record["object"]
  if not is_text(object) then return DROP, timestamp, record end
  local is_audit = object:find('^{"event"') or object:find('^{"alarm"')
  return CHANGED, timestamp, {object = object, impersonation_is_audit = is_audit ~= nil}
end

function ecs(tag, timestamp, rest)
  local is_audit = rest["impersonation_is_audit"]
  rest["impersonation_is_audit"] = nil
  -- The parser leaves an object that is no JSON.
  if is_text(rest["object"]) then return DROP, timestamp, rest end
  local inner = type(rest["impersonation"]) == "table" and rest["impersonation"] or {}
  local token = type(rest["token"]) == "table" and rest["token"] or {}
  local guard = type(rest["guard"]) == "string" and rest["guard"] or "-"
  local has_txn = is_text(token["txn"]) and token["txn"] ~= "-"
  local event = type(inner["event"]) == "string" and inner["event"] or "-"
  local refused = "impersonated_request.refused"
  local is_call = not is_audit
    and (event == refused or (has_txn and (not is_known(event) or (guard ~= "" and guard ~= "-"))))
  if not is_audit and not is_call then return DROP, timestamp, rest end

  -- The name of the event.
  local is_alarm = is_audit and not is_text(rest["event"])
  local name = "impersonated_request.allowed"
  if is_audit then name = take(rest, is_alarm and "alarm" or "event") end
  if name == nil then return DROP, timestamp, rest end
  if is_audit and not is_alarm and not is_known(name) then return DROP, timestamp, rest end
  if is_alarm and EVENTS["alarm:" .. name] == nil then return DROP, timestamp, rest end
  local is_guards = is_audit and name == refused
  if is_guards and HAS_ACCESS_LOG then return DROP, timestamp, rest end
  if is_guards or event == refused then
    local enforced = rest["enforced"]
    if is_call then enforced = inner["enforced"] end
    local is_reported = enforced == false
      or (guard:sub(1, 8) == "reported" and enforced ~= true)
    name = is_reported and "impersonated_request.reported" or refused
  end
  local row = EVENTS[is_alarm and ("alarm:" .. name) or name]
    or {category = {}, type = {}, acts_as = false, dataset = "audit"}

  local out = {
    ecs = {version = "9.0.0"},
    event = {
      kind = is_alarm and "alert" or "event",
      category = row.category,
      type = row.type,
      dataset = "impersonation." .. row.dataset,
      module = "impersonation",
      action = name,
    },
  }
  if not is_alarm then
    local has_failed = name:find("refused$") or name:find(".not_", 1, true)
    out.event.outcome = has_failed and "failure" or "success"
  end

  -- The people, and the id of the impersonation.
  local id, user, acts
  if is_call then
    id, user, acts = take(token, "txn"), take(token, "sub"), take(token, "act")
  else
    id, user = take(rest, "subject_token_id"), take(rest, "user_id")
    acts = take(rest, row.acts_as and "actor_id" or "requested_by")
  end
  if acts or user then
    out.user = {id = acts}
    if user then out.user[row.acts_as and "effective" or "target"] = {id = user} end
  end
  local people, known = {}, {}
  local function meet(one)
    if is_text(one) and not known[one] then
      known[one] = true
      people[#people + 1] = one
    end
  end
  meet(acts)
  meet(user)
  meet(rest["actor_id"])
  if type(rest["approved_by"]) == "table" then
    for _, one in ipairs(rest["approved_by"]) do meet(one) end
  end
  if #people > 0 then out.related = {user = people} end

  -- The other fields of ECS. A text may stand in the member `impersonation`, too.
  local function text(member)
    return take(rest, member) or take(inner, member)
  end
  out.event.reason = text("reason")
  local code = text("error")
  if code then out.error = {code = code} end
  local request = {id = text("request_id"), method = text("method")}
  local status = number(rest, "status")
  if next(request) or status then
    out.http = {request = next(request) and request, response = status and {status_code = status}}
  end
  local path = text("path")
  if path then out.url = {path = path} end
  local address = text("client_address")
  if address then out.client = {address = address, ip = is_ip(address) and address or nil} end
  local duration = number(rest, "duration_ms")
  out.event.duration = duration and duration * 1000000

  -- What ECS has no field for keeps its name.
  if id and rest["id"] == nil then rest["id"] = id end
  if next(rest) then out.impersonation = rest end
  return CHANGED, timestamp, out
end
