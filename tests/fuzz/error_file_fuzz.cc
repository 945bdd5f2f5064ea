// Any bytes at all as a worker's error file, and what the launcher makes of it.
//
// Whatever they are: nothing crashes or hangs; what is understood has one of the two shapes, is read again as
// the same, stays so when it is passed on, and gives a report with its rules and a job page's words.
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

// One file for all inputs of this process.
const std::string& PassedOn() {
  static const std::string* const path = [] {
    const char* tmp = getenv("TEST_TMPDIR");
    return new std::string(absl::StrCat(tmp == nullptr ? "/tmp" : tmp, "/error_file_fuzz.", getpid()));
  }();
  return *path;
}

// Boost.JSON may read a number with many digits as the double beside the nearest one.
bool AlmostEqual(double a, double b) { return std::abs(a - b) <= 1e-15 * std::abs(a) || a == b; }

// Letter by letter, but for that.
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

void CheckPassedOn(const WorkerError& error) {
  Check(WriteErrorFile(PassedOn(), error, 3).ok(), "it can be passed on");
  const std::optional<WorkerError> again = ReadErrorFile(PassedOn());
  Check(again.has_value(), "what was passed on is understood");
  Check(again->text == error.text && again->timestamp == error.timestamp, "and says the same");
  // Passed on a second time it does not change: all that was in it came through the first time.
  Check(WriteErrorFile(PassedOn(), *again, 3).ok(), "it can be passed on again");
  Check(Same(json::parse(ReadErrorFile(PassedOn())->json), json::parse(again->json)), "with the same fields");
  unlink(PassedOn().c_str());
}

void CheckReport(const WorkerError& error) {
  const FailureRecord record = {
      .failure = {.rank = Rank(1), .local_rank = LocalRank(1), .host = "h", .pid = 7, .exit = Exited{1}},
      .timestamp = error.timestamp,
      .message = absl::StrReplaceAll(error.text, {{"\n", "\n  "}}),
      .error_file = "f",
      .worker_error = error};
  const std::string report = FormatFailureReport("w.py", {record, record}, absl::UTCTimeZone());
  Check(absl::StartsWith(report, "\n======") && absl::EndsWith(report, "=\n"), "a report has its rules");
  Check(absl::StrContains(report, "Root Cause (first observed failure):\n[0]:\n"), "of equals the first");
  Check(absl::StrContains(report, record.message), "all of the worker's words are in it");
  ProgramError(error.text);
}

}  // namespace
}  // namespace ddprun

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ddprun;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const std::optional<WorkerError> error = ParseErrorFile(input);
  if (!error) return 0;
  Check(error->json == input, "the file is kept as it is");
  Check(ParseErrorFile(input) == error, "equal files are read equally");
  CheckPassedOn(*error);
  CheckReport(*error);
  return 0;
}
