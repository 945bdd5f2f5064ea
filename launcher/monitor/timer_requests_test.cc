#include "launcher/monitor/timer_requests.h"

#include <climits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Requests in the format that Python's json.dumps writes.
constexpr char kAcquire[] =
    R"({"version": 1, "pid": 123, "scope_id": "a step", "expiration_time": 1795248899.5, "signal": 9})";
constexpr char kRelease[] =
    R"({"version": 1, "pid": 123, "scope_id": "a step", "expiration_time": -1, "signal": 0})";

const TimerRequest kAcquired = {.pid = 123, .scope = "a step", .expires = 1795248899.5, .signo = 9};
const TimerRequest kReleased = {.pid = 123, .scope = "a step", .expires = -1, .signo = 0};

struct Read {
  std::vector<TimerRequest> requests;
  std::vector<std::string> errors;
};

// Feeds `text` to a TimerLines in pieces of `piece` bytes.
Read ReadLines(const std::string& text, size_t piece = std::string::npos) {
  Read read;
  TimerLines lines;
  const TimerLines::Handlers handlers = {
      .request = [&](const TimerRequest& r) { read.requests.push_back(r); },
      .error = [&](const absl::Status& s) { read.errors.emplace_back(s.message()); }};
  for (size_t at = 0; at < text.size(); at += std::min(piece, text.size() - at)) {
    lines.Feed(absl::string_view(text).substr(at, piece), handlers);
    EXPECT_LE(lines.buffered_bytes(), size_t{PIPE_BUF});
  }
  return read;
}

TEST(TimerLinesTest, DeliversRequestsInOrderForAnyPieceSize) {
  const std::string text = absl::StrCat(kAcquire, "\n", kRelease, "\n\n", kAcquire, "\n");
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const Read read = ReadLines(text, piece);
    EXPECT_THAT(read.requests, ElementsAre(kAcquired, kReleased, kAcquired));
    EXPECT_THAT(read.errors, IsEmpty());
  }
  EXPECT_FALSE(kAcquired.releases());
  EXPECT_TRUE(kReleased.releases());
}

TEST(TimerLinesTest, WaitsForTheNewline) {
  const Read read = ReadLines(kAcquire);
  EXPECT_THAT(read.requests, IsEmpty());
  EXPECT_THAT(read.errors, IsEmpty());
}

TEST(TimerLinesTest, ReportsTheErrorInAnInvalidLine) {
  const struct {
    const char* line;
    const char* error;
  } cases[] = {
      {"garbage", "not a JSON object: \"garbage\""},
      {"\x01\xff\x80", "not a JSON object: \"\\001\\377\\200\""},
      {"[1]", "not a JSON object"},
      {"{}", "\"version\""},
      {R"({"version": 2, "pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 9})",
       "\"version\" is not 1"},
      {R"({"version": 1, "pid": 0, "scope_id": "s", "expiration_time": 1, "signal": 9})", "\"pid\""},
      {R"({"version": 1, "pid": -1, "scope_id": "s", "expiration_time": 1, "signal": 9})", "\"pid\""},
      {R"({"version": 1, "pid": 99999999999, "scope_id": "s", "expiration_time": 1, "signal": 9})",
       "\"pid\""},
      {R"({"version": 1, "pid": "1", "scope_id": "s", "expiration_time": 1, "signal": 9})", "\"pid\""},
      {R"({"version": 1, "pid": 1, "scope_id": 7, "expiration_time": 1, "signal": 9})", "\"scope_id\""},
      {R"({"version": 1, "pid": 1, "scope_id": "s", "expiration_time": "1", "signal": 9})",
       "\"expiration_time\""},
      {R"({"version": 1, "pid": 1, "scope_id": "s", "expiration_time": Infinity, "signal": 9})",
       "not a JSON"},
      {R"({"version": 1, "pid": 1, "scope_id": "s", "expiration_time": 1e999, "signal": 9})", ""},
      {R"({"version": 1, "pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 65})", "\"signal\""},
      {R"({"version": 1, "pid": 1, "scope_id": "s", "expiration_time": 1})", "\"signal\""},
  };
  for (const auto& c : cases) {
    const Read read = ReadLines(absl::StrCat(c.line, "\n", kAcquire, "\n"));
    EXPECT_THAT(read.errors, ElementsAre(HasSubstr(c.error))) << c.line;
    EXPECT_THAT(read.requests, ElementsAre(kAcquired))
        << "the request after this line must be accepted: " << c.line;
  }
}

TEST(TimerLinesTest, DiscardsALongLineUpToItsNewline) {
  for (const size_t piece : {size_t{1}, size_t{1000}, size_t{100'000}}) {
    const Read read = ReadLines(std::string(3 * PIPE_BUF, 'x') + "\n" + kAcquire + "\n", piece);
    EXPECT_THAT(read.errors, ElementsAre(HasSubstr("longer than 4096 bytes")));
    EXPECT_THAT(read.requests, ElementsAre(kAcquired));
  }
  // The longest line that a client may write.
  const std::string head = R"({"version": 1, "pid": 1, "scope_id": ")";
  const std::string tail = R"(", "expiration_time": 1, "signal": 9})";
  const std::string scope(PIPE_BUF - head.size() - tail.size(), 's');
  EXPECT_THAT(ReadLines(head + scope + tail + "\n").requests, SizeIs(1));
}

TEST(TimerLinesTest, AcceptsARequestAfterAFragmentOnTheSameLine) {
  const Read read = ReadLines(absl::StrCat(std::string(kAcquire).substr(0, 30), kRelease, "\n"));
  EXPECT_THAT(read.errors, SizeIs(1));
  EXPECT_THAT(read.requests, ElementsAre(kReleased));
}

}  // namespace
}  // namespace ddprun
