#include "launcher/logs/filtered_log.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace ddprun {

void FilteredLog::WriteMatching(absl::string_view lines, size_t prefix_size) {
  std::string matching;
  while (!lines.empty()) {
    const absl::string_view line = lines.substr(0, lines.find('\n', prefix_size) + 1);
    lines.remove_prefix(line.size());
    const auto in_line = [text = line.substr(prefix_size)](const std::string& filter) {
      return absl::StrContains(text, filter);
    };
    if (std::any_of(filters_.begin(), filters_.end(), in_line)) {
      matching.append(line.data(), line.size());
    }
  }
  if (!matching.empty()) file_->Write(std::make_shared<Chunk>(Chunk::CopyOf(matching)));
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
