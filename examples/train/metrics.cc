#include "examples/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "ddprun/status.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {

std::string ToJson(const StepMetrics& m) {
  return absl::StrFormat(
      R"({"step":%d,"loss":%.17g,"time":%.3f,"world_size":%d,"restart":%d,"round":%d,"tokens_per_s":%.17g})",
      m.step, m.loss, m.time, m.world_size, m.restart, m.round, m.tokens_per_s);
}

StatusOr<StepMetrics> FromJson(std::string_view line) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse({line.data(), line.size()}, error);
  if (error || !value.is_object()) return InvalidArgumentError("not a JSON object");
  const boost::json::object& object = value.get_object();
  bool complete = true;
  const auto number = [&](const char* name) {
    const boost::json::value* field = object.if_contains(name);
    boost::json::error_code bad;
    const double number = field != nullptr ? field->to_number<double>(bad) : 0;
    if (field == nullptr || bad) complete = false;
    return number;
  };
  const StepMetrics metrics{.step = static_cast<int64_t>(number("step")),
                            .loss = number("loss"),
                            .time = number("time"),
                            .world_size = static_cast<int>(number("world_size")),
                            .restart = static_cast<int>(number("restart")),
                            .round = static_cast<int64_t>(number("round")),
                            .tokens_per_s = number("tokens_per_s")};
  if (!complete) return InvalidArgumentError("a field is missing or not a number");
  return metrics;
}

StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<StepMetrics> all;
  for (const std::string_view line : StrSplit(text, '\n')) {
    StatusOr<StepMetrics> metrics = FromJson(line);
    if (metrics.ok()) all.push_back(*metrics);
  }
  return all;
}

StatusOr<MetricsWriter> MetricsWriter::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return FileError("--metrics: cannot open", path, errno);
  char last = '\n';
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
  return MetricsWriter(path, fd, last != '\n');
}

MetricsWriter::MetricsWriter(std::string path, int fd, bool torn)
    : path_(std::move(path)), fd_(fd), torn_(torn) {}
MetricsWriter::MetricsWriter(MetricsWriter&& other) noexcept
    : path_(other.path_), fd_(std::exchange(other.fd_, -1)), torn_(other.torn_) {}
MetricsWriter::~MetricsWriter() {
  if (fd_ >= 0) close(fd_);
}

Status MetricsWriter::Append(const StepMetrics& metrics) {
  const std::string line = (torn_ ? "\n" : "") + ToJson(metrics) + "\n";
  ssize_t written;
  do {
    written = write(fd_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return FileError("cannot write", path_, errno);
  torn_ = static_cast<size_t>(written) != line.size();
  return torn_ ? FileError("cannot write", path_, ENOSPC) : OkStatus();
}

}  // namespace ddprun::train
