#include <sys/stat.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "launcher/cli/option_values.h"
#include "launcher/config/option_groups.h"

namespace ddprun {
namespace {

absl::Status ReadLogDir(const Options& options, LaunchConfig& config) {
  config.log_dir = options.Get("log-dir");
  struct stat info;
  if (config.log_dir != "/dev/null" && stat(config.log_dir.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
    return BadValue(options, "log-dir", "a directory, but this is a file");
  }
  return absl::OkStatus();
}

absl::Status ReadConsoleRanks(const Options& options, LaunchConfig& config) {
  if (!options.IsSet("local-ranks-filter")) return absl::OkStatus();
  std::set<int> ranks;
  for (const absl::string_view part : absl::StrSplit(options.Get("local-ranks-filter"), ',')) {
    int rank;
    if (!absl::SimpleAtoi(part, &rank)) {
      return BadValue(options, "local-ranks-filter", "a comma-separated list of integers, e.g. 0,1,2");
    }
    ranks.insert(rank);
  }
  config.console_ranks = std::move(ranks);
  return absl::OkStatus();
}

// Splits at single commas. Two commas, paired from the left, stand for a literal comma.
std::vector<std::string> SplitFilters(absl::string_view text) {
  std::vector<std::string> filters = {""};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      filters.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      filters.back() += ',';
      ++i;
    } else {
      filters.emplace_back();
    }
  }
  return filters;
}

// Accepts values such as "4096", "64K", "500M" and "2G"; 0 means no limit. The minimum leaves room for a few
// lines.
absl::Status ReadMaxLogBytes(const Options& options, LaunchConfig& config) {
  if (!options.IsSet("log-max-size")) return absl::OkStatus();
  constexpr int64_t kLeast = 4 << 10;
  constexpr int64_t kMost = int64_t{1} << 50;
  std::string text = options.Get("log-max-size");
  int shift = 0;
  switch (absl::ascii_toupper(static_cast<unsigned char>(text.back()))) {
    case 'K':
      shift = 10;
      break;
    case 'M':
      shift = 20;
      break;
    case 'G':
      shift = 30;
      break;
  }
  if (shift > 0) text.pop_back();
  int64_t number;
  if (!absl::SimpleAtoi(text, &number) || number < 0 || number > (kMost >> shift) ||
      (number > 0 && (number << shift) < kLeast)) {
    return BadValue(options, "log-max-size", "bytes, 4K or more, such as 500M or 2G, or 0 for no limit");
  }
  config.max_log_bytes = number << shift;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadOutput(const Options& options, const ProcessInputs& inputs, LaunchConfig& config) {
  RETURN_IF_ERROR(ReadLogDir(options, config));
  ASSIGN_OR_RETURN(config.redirects, StreamChoice::Parse(options.Get("redirects")),
                   options.Quote("redirects"));
  ASSIGN_OR_RETURN(config.tee, StreamChoice::Parse(options.Get("tee")), options.Quote("tee"));
  config.line_prefix_template = options.IsSet("log-line-prefix-template")
                                    ? options.Get("log-line-prefix-template")
                                    : inputs.get_env("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE").value_or("");
  RETURN_IF_ERROR(ReadConsoleRanks(options, config));
  if (options.IsGiven("duplicate-stdout-filters")) {
    config.stdout_filters = SplitFilters(options.Get("duplicate-stdout-filters"));
  }
  if (options.IsGiven("duplicate-stderr-filters")) {
    config.stderr_filters = SplitFilters(options.Get("duplicate-stderr-filters"));
  }
  RETURN_IF_ERROR(ReadMaxLogBytes(options, config));
  if (options.IsGiven("logs-specs") && options.Get("logs-specs") != "default") {
    return BadValue(options, "logs-specs",
                    "default: a Python plug-in cannot be loaded here. --log-dir, --redirects, --tee, the "
                    "filters and --log-max-size control the output");
  }
  return absl::OkStatus();
}

}  // namespace ddprun
