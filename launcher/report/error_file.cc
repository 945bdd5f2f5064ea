#include "launcher/report/error_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/report/python_json.h"
#include "os/descriptor.h"
#include "os/files.h"

namespace ddprun {
namespace {

namespace json = boost::json;

constexpr size_t kMaxBytes = 16 << 20;

const json::object* Object(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::string> Text(const json::object& in, const char* key) {
  const json::value* value = in.if_contains(key);
  if (value == nullptr || !value->is_string()) return std::nullopt;
  return std::string(value->get_string().data(), value->get_string().size());
}

// Returns the member `key`, which may be a number or a string, in whole seconds. Returns nullopt if the
// member is missing or invalid.
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

// Returns the code unit of an escape such as "\udce9" at the beginning of `text`; nullopt if there is none.
std::optional<int> CodeUnit(absl::string_view text) {
  int unit;
  if (!absl::StartsWith(text, "\\u") || text.size() < 6 || !absl::SimpleHexAtoi(text.substr(2, 4), &unit)) {
    return std::nullopt;
  }
  return unit;
}

// Replaces escapes of unpaired surrogates with U+FFFD. Python writes such escapes for bytes that are not
// valid UTF-8, for example in a file name. Other JSON parsers reject these escapes.
std::string ReplaceUnpairedSurrogates(absl::string_view text) {
  const auto is_first = [](std::optional<int> unit) { return unit >= 0xD800 && unit < 0xDC00; };
  const auto is_second = [](std::optional<int> unit) { return unit >= 0xDC00 && unit < 0xE000; };
  std::string whole;
  for (size_t at; (at = text.find('\\')) != absl::string_view::npos;) {
    absl::StrAppend(&whole, text.substr(0, at));
    text.remove_prefix(at);
    const std::optional<int> unit = CodeUnit(text);
    size_t size = unit ? 6 : 2;
    const bool pair = is_first(unit) && is_second(CodeUnit(text.substr(6)));
    if (pair) size = 12;
    const bool unpaired = !pair && (is_first(unit) || is_second(unit));
    absl::StrAppend(&whole, unpaired ? "\\ufffd" : text.substr(0, size));
    text.remove_prefix(std::min(size, text.size()));
  }
  return absl::StrCat(whole, text);
}

json::object ParseObject(absl::string_view text) {
  json::error_code error;
  json::value root = json::parse(ReplaceUnpairedSurrogates(text), error);
  if (error || !root.is_object()) return {};
  return std::move(root.get_object());
}

// Replaces the file atomically. Returns 0 or an errno value. After an error, the old file is unchanged.
int ReplaceFile(const std::string& path, absl::string_view text) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  unlink(temporary.c_str());
  UniqueFd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) return errno;
  int error = WriteAll(file.get(), text);
  if (error == 0 && close(file.Release()) != 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

// Overwrites the existing file. Returns 0 or an errno value. Fails if the file is a FIFO without a reader.
int WriteInPlace(const std::string& path, absl::string_view text) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  return file ? WriteAll(file.get(), text) : errno;
}

absl::Status Write(const std::string& path, const json::object& root) {
  const std::string text = PythonDumps(root);
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  int error;
  if (exists && !S_ISREG(info.st_mode)) {
    error = WriteInPlace(path, text);  // Do not replace a device or a FIFO.
  } else {
    error = ReplaceFile(path, text);
    // The file may be a mount point (Kubernetes' /dev/termination-log), or its directory may be unwritable.
    const bool only_in_place = error == EBUSY || error == EACCES || error == EPERM || error == EROFS;
    if (exists && only_in_place && WriteInPlace(path, text) == 0) error = 0;
  }
  if (error == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write the error file ", path));
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
  error.plain = true;
  if (root.contains("timestamp")) {
    const auto timestamp = Seconds(root, "timestamp");
    if (!timestamp) return std::nullopt;
    error.timestamp = *timestamp;
  }
  return error;
}

std::optional<WorkerError> ReadErrorFile(const std::string& path) {
  const std::string text = HeadOfFile(path, kMaxBytes + 1);
  return text.size() > kMaxBytes ? std::nullopt : ParseErrorFile(text);
}

std::string HeadOfFile(const std::string& path, size_t max_bytes) {
  const std::optional<PlainFile> file = OpenPlainFile(path);
  if (!file) return "";
  std::string text(std::min<size_t>(file->size, max_bytes), '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = read(file->fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

absl::Status WriteErrorFile(const std::string& path, const WorkerError& error, int exit_code) {
  json::object root = ParseObject(error.json);
  if (json::value* message = root.if_contains("message"); message != nullptr && message->is_object()) {
    if (exit_code != 0) message->get_object()["errorCode"] = exit_code;
  }
  return Write(path, root);
}

absl::Status WriteErrorFile(const std::string& path, const std::string& text, int64_t timestamp) {
  const json::object extra = {{"py_callstack", text}, {"timestamp", absl::StrCat(timestamp)}};
  return Write(path, {{"message", json::object{{"message", text}, {"extraInfo", extra}}}});
}

}  // namespace ddprun
