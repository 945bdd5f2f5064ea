#include "launcher/logs/filtered_log.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "base/status_macros.h"

namespace ddprun {

absl::StatusOr<std::shared_ptr<FilteredLog>> FilteredLog::Open(const std::string& path,
                                                               std::vector<std::string> filters,
                                                               int64_t max_bytes,
                                                               FileWriter::OnError on_error) {
  ASSIGN_OR_RETURN(std::unique_ptr<LogFile> file, LogFile::Open(path, max_bytes, std::move(on_error)));
  return std::shared_ptr<FilteredLog>(new FilteredLog(std::move(file), std::move(filters)));
}

void FilteredLog::WriteMatching(absl::string_view lines, size_t prefix_size) {
  while (!lines.empty()) {
    const absl::string_view line = lines.substr(0, lines.find('\n', prefix_size) + 1);
    lines.remove_prefix(line.size());
    const auto in_line = [text = line.substr(prefix_size)](const std::string& filter) {
      return absl::StrContains(text, filter);
    };
    if (std::any_of(filters_.begin(), filters_.end(), in_line)) file_->Write(line);
  }
}

void FilteredStream::Feed(absl::string_view bytes) {
  prefixer_.Feed(bytes, lines_);
  Pass();
}

void FilteredStream::Finish() {
  prefixer_.Finish(lines_);
  Pass();
}

void FilteredStream::Pass() {
  log_->WriteMatching(lines_, prefixer_.prefix_size());
  lines_.clear();
}

}  // namespace ddprun
