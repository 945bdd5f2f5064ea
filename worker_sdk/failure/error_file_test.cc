#include "worker_sdk/failure/error_file.h"

#include <fstream>
#include <sstream>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ErrorFileTest, MatchesPyTorchsFormat) {
  EXPECT_EQ(ErrorFileJson(InternalError("said \"no\"\n"), 1795248899),
            R"({"message":{"message":"said \"no\"\n","extraInfo":{"py_callstack":"said \"no\"\n",)"
            R"("timestamp":"1795248899"}}})");
}

TEST(LastWordsTest, MarkFailuresThatOriginateElsewhere) {
  EXPECT_EQ(LastWords(FailedPreconditionError("the loss is nan")), "the loss is nan");
  EXPECT_EQ(LastWords(UnavailableError("rank 3 of round 7 is gone")),
            "rank 3 of round 7 is gone (the cause is elsewhere)");
  EXPECT_EQ(LastWords(AbortedError("round 4 has taken over")),
            "round 4 has taken over (the cause is elsewhere)");
}

TEST(ErrorFileTest, IsWrittenOnlyForTheWorkersOwnFailure) {
  const std::string path = testing::TempDir() + "/error.json";
  LeaveErrorFile(path, UnavailableError("rank 3 of round 7 is gone"));
  LeaveErrorFile(path, AbortedError("stopped by request"));
  LeaveErrorFile(path, DeadlineExceededError("rank 3 is silent"));
  LeaveErrorFile(path, OkStatus());
  EXPECT_FALSE(std::ifstream(path).good());
  LeaveErrorFile(path, FailedPreconditionError("mine"));
  EXPECT_THAT(Read(path), testing::HasSubstr(R"("message":"mine")"));
  LeaveErrorFile("", InternalError("no path"));
}

}  // namespace
}  // namespace ddprun
