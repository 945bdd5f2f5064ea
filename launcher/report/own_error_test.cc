#include "launcher/report/own_error.h"

#include <csignal>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class OwnErrorTest : public testing::Test {
 protected:
  OwnErrorTest() { unlink(path_.c_str()); }
  std::string Contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static FailureRecord Cause(std::optional<WorkerError> error) {
    return {.failure = {.exit = Exited{3}}, .worker_error = std::move(error)};
  }

  const std::string path_ = absl::StrCat(testing::TempDir(), "/own_error", getpid(), ".json");
  std::vector<std::string> messages_;
  const OwnErrorFile own_{path_, [this](const std::string& text) { messages_.push_back(text); }};
};

TEST_F(OwnErrorTest, CopiesTheRootCausesFile) {
  own_.LeaveCause(Cause(ParseErrorFile(R"({"message": {"message": "m", "extraInfo": {"timestamp": "5"}}})")));
  EXPECT_EQ(Contents(), R"({"message": {"message": "m", "extraInfo": {"timestamp": "5"}, "errorCode": 3}})");
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(OwnErrorTest, WritesNoFileIfTheRootCauseHasNone) {
  own_.LeaveCause(Cause(std::nullopt));
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

TEST_F(OwnErrorTest, WritesTheLaunchersErrorInTheSameFormat) {
  own_.LeaveReason(EndReason::kJoinTimeout, "only 1 of 2 nodes joined", 1795248899);
  EXPECT_EQ(Contents(),
            R"({"message": {"message": "RendezvousTimeoutError: only 1 of 2 nodes joined", )"
            R"("extraInfo": {"py_callstack": "RendezvousTimeoutError: only 1 of 2 nodes joined", )"
            R"("timestamp": "1795248899"}}})");
  const auto read = ReadErrorFile(path_);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->timestamp, 1795248899);
  own_.LeaveSignal(SIGTERM, 0);
  EXPECT_THAT(Contents(), HasSubstr(absl::StrCat("SignalException: Process ", getpid(), " got signal: 15")));
}

TEST_F(OwnErrorTest, LogsAndReplacesAnExistingFile) {
  std::ofstream(path_) << "older\n";
  own_.LeaveReason(EndReason::kBroken, "x", 0);
  EXPECT_THAT(
      messages_,
      ElementsAre(HasSubstr(path_ + " already exists and will be overwritten. Original contents:\nolder")));
  EXPECT_THAT(Contents(), StartsWith("{\"message\""));
  std::ofstream(path_) << std::string(1 << 20, 'x');
  own_.LeaveReason(EndReason::kBroken, "x", 0);
  EXPECT_LT(messages_.back().size(), 3000u) << "only the beginning of a large file may be logged";
}

TEST_F(OwnErrorTest, LogsThePathOfAFileThatCannotBeWritten) {
  const OwnErrorFile own("/no/such/dir/x.json",
                         [this](const std::string& text) { messages_.push_back(text); });
  own.LeaveReason(EndReason::kBroken, "x", 0);
  EXPECT_THAT(messages_, ElementsAre(HasSubstr("/no/such/dir/x.json")));
}

TEST_F(OwnErrorTest, DoesNothingWithoutAPath) {
  const OwnErrorFile own("", [](const std::string& text) { FAIL() << text; });
  own.LeaveReason(EndReason::kBroken, "x", 0);
  own.LeaveSignal(SIGTERM, 0);
  own.LeaveCause(Cause(ParseErrorFile(R"({"message": "m"})")));
}

}  // namespace
}  // namespace ddprun
