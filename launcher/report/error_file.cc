#include "launcher/report/error_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/report/python_json.h"

namespace ddprun {
namespace {

namespace json = boost::json;

constexpr int64_t kMaxBytes = 16 << 20;

const json::object* Object(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::string> Text(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

// Whole seconds, as a number or as text.
std::optional<int64_t> Seconds(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  if (value == nullptr) return std::nullopt;
  if (const double* number = value->if_double(); number != nullptr && std::abs(*number) < 1e18) {
    return static_cast<int64_t>(*number);
  }
  if (value->is_number()) {
    json::error_code error;
    const auto number = value->to_number<int64_t>(error);
    if (error) return std::nullopt;
    return number;
  }
  int64_t number;
  const auto text = Text(in, key);
  if (!text || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

json::object ParseObject(absl::string_view text) {
  json::error_code error;
  json::value root = json::parse(json::string_view(text.data(), text.size()), error);
  if (error || !root.is_object()) return {};
  return std::move(root.get_object());
}

absl::Status Replace(const std::string& path, const json::object& root) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file << PythonDumps(root);
  file.close();
  if (file && rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write the error file ", path));
  unlink(temporary.c_str());
  return status;
}

}  // namespace

std::optional<WorkerError> ParseErrorFile(absl::string_view text) {
  const json::object root = ParseObject(text);
  WorkerError error = {.text = "<N/A>", .timestamp = 0, .json = std::string(text)};
  if (const json::object* message = Object(root, "message")) {
    const json::object* extra = Object(*message, "extraInfo");
    if (extra == nullptr) return std::nullopt;
    const auto timestamp = Seconds(*extra, "timestamp");
    if (!timestamp) return std::nullopt;
    error.timestamp = *timestamp;
    if (auto shown = Text(*extra, "py_callstack")) {
      error.text = *std::move(shown);
    } else if (auto plain = Text(*message, "message")) {
      error.text = *std::move(plain);
    }
    return error;
  }
  auto message = Text(root, "message");
  if (!message) return std::nullopt;
  error.text = *std::move(message);
  if (root.contains("timestamp")) {
    const auto timestamp = Seconds(root, "timestamp");
    if (!timestamp) return std::nullopt;
    error.timestamp = *timestamp;
  }
  return error;
}

std::optional<WorkerError> ReadErrorFile(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || info.st_size > kMaxBytes) return std::nullopt;
  return ParseErrorFile(HeadOfFile(path, kMaxBytes));
}

std::string HeadOfFile(const std::string& path, size_t max_bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text(std::min<size_t>(info.st_size, max_bytes), '\0');
  // Unlike an iterator it does not throw where the disk fails.
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return text;
}

absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code) {
  json::object root = ParseObject(error.json);
  if (json::value* message = root.if_contains("message"); message != nullptr && message->is_object()) {
    if (exit_code != 0) message->get_object()["errorCode"] = exit_code;
  }
  return Replace(path, root);
}

absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp) {
  const json::object extra = {{"py_callstack", text}, {"timestamp", absl::StrCat(timestamp)}};
  return Replace(path, {{"message", json::object{{"message", text}, {"extraInfo", extra}}}});
}

}  // namespace ddprun
