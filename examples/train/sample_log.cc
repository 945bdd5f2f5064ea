#include "examples/train/sample_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {

std::string ToJson(const SampleUse& use) {
  boost::json::object line;
  line["round"] = use.round;
  line["step"] = use.step;
  line["rank"] = use.rank;
  line["world_size"] = use.world_size;
  line["epoch"] = use.epoch;
  line["position"] = use.position;
  line["samples"] = boost::json::array(use.samples.begin(), use.samples.end());
  return boost::json::serialize(line);
}

StatusOr<SampleUse> SampleUseFromJson(std::string_view line) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse({line.data(), line.size()}, error);
  if (error || !value.is_object()) return InvalidArgumentError("not a JSON object");
  bool complete = true;
  const auto number = [&](const boost::json::value* from) -> int64_t {
    if (from != nullptr && from->is_int64()) return from->get_int64();
    complete = false;
    return 0;
  };
  const boost::json::object& object = value.get_object();
  const auto field = [&](const char* name) { return number(object.if_contains(name)); };
  SampleUse use{.round = field("round"),
                .step = field("step"),
                .rank = static_cast<int>(field("rank")),
                .world_size = static_cast<int>(field("world_size")),
                .epoch = field("epoch"),
                .position = field("position")};
  const boost::json::value* samples = object.if_contains("samples");
  if (samples == nullptr || !samples->is_array()) return InvalidArgumentError("no list of samples");
  for (const boost::json::value& sample : samples->get_array()) use.samples.push_back(number(&sample));
  if (!complete) return InvalidArgumentError("a field is missing or not a number");
  return use;
}

StatusOr<std::vector<SampleUse>> ReadSampleLogs(const std::string& directory) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  std::vector<SampleUse> all;
  for (const std::string& name : names) {
    if (!name.starts_with("samples-") || !name.ends_with(".jsonl")) continue;
    DDPRUN_ASSIGN_OR_RETURN(const std::string text, ReadFile(StrCat(directory, "/", name)));
    for (const std::string_view line : StrSplit(text, '\n')) {
      StatusOr<SampleUse> use = SampleUseFromJson(line);
      if (use.ok()) all.push_back(*std::move(use));
    }
  }
  return all;
}

StatusOr<SampleLog> SampleLog::Open(const std::string& directory, int64_t round, int rank) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError("cannot make directory", directory, error.value());
  const std::string path = StrCat(directory, "/samples-r", round, "-rank", rank, ".jsonl");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("cannot open", path, errno);
  return SampleLog(path, fd);
}

SampleLog::SampleLog(SampleLog&& other) noexcept : path_(other.path_), fd_(std::exchange(other.fd_, -1)) {}
SampleLog::~SampleLog() {
  if (fd_ >= 0) close(fd_);
}

Status SampleLog::Append(const SampleUse& use) {
  const std::string line = ToJson(use) + "\n";
  ssize_t written;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return OkStatus();
  return FileError("cannot write", path_, written < 0 ? errno : ENOSPC);
}

}  // namespace ddprun::train
