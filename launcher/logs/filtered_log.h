// The lines of all workers' tee'd streams that have one of some texts in them, together in one file.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "launcher/logs/lines.h"
#include "launcher/logs/queued_log.h"

namespace ddprun {

class FilteredLog {
 public:
  //   filters: a line is taken if it has one of these in it; an empty one is in each line.
  FilteredLog(std::unique_ptr<QueuedLog> file, std::vector<std::string> filters)
      : file_(std::move(file)), filters_(std::move(filters)) {}

  // Whole lines, each with a prefix of that size, which is not looked into.
  void WriteMatching(absl::string_view lines, size_t prefix_size);

 private:
  const std::unique_ptr<QueuedLog> file_;
  const std::vector<std::string> filters_;
};

// What one stream gives to it. Sees each line as soon as it is written, whatever the console does.
class FilteredStream {
 public:
  // `log` is shared by the streams of all workers of a start.
  FilteredStream(std::shared_ptr<FilteredLog> log, std::string prefix)
      : log_(std::move(log)), prefixer_(std::move(prefix)) {}

  void Feed(absl::string_view bytes);
  // Nothing comes any more.
  void Finish();

 private:
  void Pass();

  std::shared_ptr<FilteredLog> log_;
  LinePrefixer prefixer_;
  std::string lines_;
};

}  // namespace ddprun
