// Parses arbitrary text as a configuration file.
//
// Invariants: no crash or hang; an error names a line of the file; the result contains only options that a
// file may set, and each of them at most once; the size of the result is bounded by the size of the file.

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
  Check(absl::IsInvalidArgument(status), "an error is a usage error");
  const std::vector<std::string> parts = absl::StrSplit(status.message(), absl::MaxSplits(':', 2));
  int line = 0;
  Check(parts.size() == 3 && parts[0] == "f" && absl::SimpleAtoi(parts[1], &line),
        "an error has the form FILE:LINE: MESSAGE");
  // The YAML library also counts a carriage return as the end of a line.
  size_t ends = 0;
  for (const char c : text) ends += c == '\n' || c == '\r';
  Check(line >= 1 && static_cast<size_t>(line) <= ends + 2, "an error names a line of the file");
}

void CheckFile(const ConfigFile& file, size_t size) {
  size_t bytes = 0;
  std::set<std::string> seen;
  for (const ConfigFile::Value& value : file.values) {
    const auto spec = FindOption(value.option);
    Check(spec.ok() && (*spec)->name == value.option, "the option exists");
    Check((*spec)->given_by == GivenBy::kVariableAndFile || (*spec)->given_by == GivenBy::kFile,
          "a file may set the option");
    Check(!(*spec)->is_flag() || value.text.empty() || value.text == "1", "a flag is on or off");
    Check(seen.insert(value.option).second, "each option is set at most once");
    Check(absl::StartsWith(value.source, "f:"), "the source names the file");
    bytes += value.text.size();
  }
  for (const std::string& arg : file.program) {
    Check(arg.find('\0') == std::string::npos, "an argument has no zero byte");
    bytes += arg.size();
  }
  for (const auto& [name, value] : file.env) bytes += name.size() + value.size();
  // A byte that is not UTF-8 becomes three bytes, and a comma in a list becomes two.
  Check(bytes <= 4 * size + 64, "the result is bounded by the size of the file");
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
