#include "launcher/monitor/timer_requests.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <climits>
#include <cmath>
#include <csignal>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

void TimerLines::Feed(absl::string_view bytes, const Handlers& handlers) {
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    const absl::string_view piece = bytes.substr(0, end);
    if (!too_long_ && line_.size() + piece.size() > PIPE_BUF) {
      too_long_ = true;
      line_.clear();
      handlers.error(absl::InvalidArgumentError(
          absl::StrCat("longer than ", PIPE_BUF, " bytes: the timer's scope is too long")));
    }
    if (!too_long_) line_.append(piece.data(), piece.size());
    if (end == bytes.size()) return;
    bytes.remove_prefix(end + 1);
    EndOfLine(handlers);
  }
}

void TimerLines::EndOfLine(const Handlers& handlers) {
  const std::string line = std::exchange(line_, {});
  if (std::exchange(too_long_, false) || line.empty()) return;
  absl::StatusOr<TimerRequest> request = ParseTimerRequest(line);
  if (!request.ok()) {
    handlers.error(request.status());
    const size_t last = line.rfind('{');
    if (last == 0 || last == std::string::npos) return;
    request = ParseTimerRequest(absl::string_view(line).substr(last));
    if (!request.ok()) return;
  }
  handlers.request(*request);
}

namespace {

namespace json = boost::json;

constexpr int kVersion = 1;
constexpr size_t kShownBytes = 120;

absl::Status Bad(absl::string_view why, absl::string_view line) {
  return absl::InvalidArgumentError(absl::StrCat(why, ": \"", absl::CEscape(line.substr(0, kShownBytes)),
                                                 line.size() > kShownBytes ? "..." : "", "\""));
}

// Returns nullopt if the value is missing, is not a number, or is not an integer in the range of int.
std::optional<int> Int(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  json::error_code error;
  const int number = value->to_number<int>(error);
  return error ? std::nullopt : std::optional(number);
}

std::optional<double> Double(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  json::error_code error;
  const auto number = value->to_number<double>(error);
  return error || !std::isfinite(number) ? std::nullopt : std::optional(number);
}

}  // namespace

absl::StatusOr<TimerRequest> ParseTimerRequest(absl::string_view line) {
  json::error_code error;
  const json::value root = json::parse(json::string_view(line.data(), line.size()), error);
  if (error || !root.is_object()) return Bad("not a JSON object", line);
  const json::object& fields = root.get_object();
  if (Int(fields, "version") != kVersion) {
    return Bad(absl::StrCat("\"version\" is not ", kVersion), line);
  }
  const std::optional<int> pid = Int(fields, "pid");
  if (!pid || *pid <= 0) return Bad("\"pid\" is not a process id", line);
  const json::value* scope = fields.if_contains("scope_id");
  if (scope == nullptr || !scope->is_string()) return Bad("\"scope_id\" is not a string", line);
  const std::optional<double> expires = Double(fields, "expiration_time");
  if (!expires) return Bad("\"expiration_time\" is not a finite number", line);
  const std::optional<int> signo = Int(fields, "signal");
  // As in torchrun, a negative number means no signal.
  if (!signo || *signo > SIGRTMAX) return Bad("\"signal\" is not a signal number", line);
  return TimerRequest{.pid = *pid,
                      .scope = std::string(scope->get_string().data(), scope->get_string().size()),
                      .expires = *expires,
                      .signo = *signo > 0 ? *signo : 0};
}

}  // namespace ddprun
