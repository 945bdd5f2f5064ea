// Any text at all, read as a configuration file.
//
// Whatever it is: nothing crashes or hangs, an error names a line of the file, and what was understood is of
// options that a file may have, each once, and no larger than the file.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "launcher/cli/config_file.h"
#include "launcher/cli/option_table.h"

namespace ddprun {
namespace {

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

void CheckError(const absl::Status& status, absl::string_view text) {
  Check(absl::IsInvalidArgument(status), "a usage error");
  const std::vector<std::string> parts = absl::StrSplit(status.message(), absl::MaxSplits(':', 2));
  int line = 0;
  Check(parts.size() == 3 && parts[0] == "f" && absl::SimpleAtoi(parts[1], &line),
        "FILE:LINE: what is wrong");
  // The library counts a carriage return as the end of a line, too.
  size_t ends = 0;
  for (const char c : text) ends += c == '\n' || c == '\r';
  Check(line >= 1 && static_cast<size_t>(line) <= ends + 2, "a line of the file");
}

void CheckFile(const ConfigFile& file, size_t size) {
  size_t bytes = 0;
  std::set<std::string> seen;
  for (const ConfigFile::Value& value : file.values) {
    const auto spec = FindOption(value.option);
    Check(spec.ok() && (*spec)->name == value.option, "an option");
    Check((*spec)->given_by == GivenBy::kVariableAndFile || (*spec)->given_by == GivenBy::kFile,
          "one that a file may have");
    Check(!(*spec)->is_flag() || value.text.empty() || value.text == "1", "a flag is on or off");
    Check(seen.insert(value.option).second, "each option once");
    Check(absl::StartsWith(value.source, "f:"), "with its place");
    bytes += value.text.size();
  }
  for (const std::string& arg : file.program) {
    Check(arg.find('\0') == std::string::npos, "an argument that can be told");
    bytes += arg.size();
  }
  for (const auto& [name, value] : file.env) bytes += name.size() + value.size();
  // A byte that is no UTF-8 becomes three, a comma in a list two.
  Check(bytes <= 4 * size + 64, "nothing grows");
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<ddprun::ConfigFile> file = ddprun::ParseConfigFile(text, "f");
  if (file.ok()) {
    ddprun::CheckFile(*file, size);
  } else {
    ddprun::CheckError(file.status(), text);
  }
  return 0;
}
