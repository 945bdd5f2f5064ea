// Parses arbitrary bytes as a worker's error file, and writes the launcher's error file and report from the
// parsed error.
//
// Invariants: no crash or hang; parsing is deterministic; the launcher's error file has the same contents
// when it is read back; the report is well formed and contains the error.
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "launcher/report/error_file.h"
#include "launcher/report/failure_record.h"
#include "launcher/report/failure_report.h"
#include "launcher/report/program_error.h"

namespace ddprun {
namespace {

namespace json = boost::json;

void Check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "fuzz: broken invariant: %s\n", what);
  std::abort();
}

// Path of the launcher's error file. All inputs of this process use the same path.
const std::string& OutputPath() {
  static const std::string* const path = [] {
    const char* tmp = getenv("TEST_TMPDIR");
    return new std::string(absl::StrCat(tmp == nullptr ? "/tmp" : tmp, "/error_file_fuzz.", getpid()));
  }();
  return *path;
}

// Boost.JSON may parse a number with many digits as a neighbor of the nearest double.
bool AlmostEqual(double a, double b) { return std::abs(a - b) <= 1e-15 * std::abs(a) || a == b; }

// Exact equality, except for doubles.
bool Same(const json::value& a, const json::value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_double()) return AlmostEqual(a.get_double(), b.get_double());
  if (a.is_array()) {
    return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(), b.get_array().end(),
                      Same);
  }
  if (!a.is_object()) return a == b;
  const auto same = [](const json::key_value_pair& one, const json::key_value_pair& other) {
    return one.key() == other.key() && Same(one.value(), other.value());
  };
  return std::equal(a.get_object().begin(), a.get_object().end(), b.get_object().begin(),
                    b.get_object().end(), same);
}

void CheckErrorFile(const WorkerError& error) {
  Check(WriteErrorFile(OutputPath(), error, 3).ok(), "a parsed error can be written");
  const std::optional<WorkerError> again = ReadErrorFile(OutputPath());
  Check(again.has_value(), "a written error can be read");
  Check(again->text == error.text && again->timestamp == error.timestamp,
        "a written error keeps its contents");
  // A second write must not change the fields that the first write has kept.
  Check(WriteErrorFile(OutputPath(), *again, 3).ok(), "an error can be written again");
  Check(Same(json::parse(ReadErrorFile(OutputPath())->json), json::parse(again->json)),
        "an error written again keeps its fields");
  unlink(OutputPath().c_str());
}

void CheckReport(const WorkerError& error) {
  const FailureRecord record = {
      .failure = {.rank = Rank(1), .local_rank = LocalRank(1), .host = "h", .pid = 7, .exit = Exited{1}},
      .timestamp = error.timestamp,
      .message = absl::StrReplaceAll(error.text, {{"\n", "\n  "}}),
      .error_file = "f",
      .worker_error = error};
  const std::string report = FormatFailureReport("w.py", {record, record}, absl::UTCTimeZone());
  Check(absl::StartsWith(report, "\n======") && absl::EndsWith(report, "=\n"),
        "a report begins and ends with a rule");
  Check(absl::StrContains(report, "Root Cause (first observed failure):\n[0]:\n"),
        "the first of two equal failures is the root cause");
  Check(absl::StrContains(report, record.message), "a report contains the whole message");
  ProgramError(error.text);
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::optional<WorkerError> error = ParseErrorFile(input);
  if (!error) return 0;
  Check(error->json == input, "the file's contents are kept unchanged");
  Check(ParseErrorFile(input) == error, "parsing is deterministic");
  CheckErrorFile(*error);
  CheckReport(*error);
  return 0;
}
