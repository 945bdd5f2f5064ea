#include "worker_sdk/snapshot/claim.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "ddprun/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/testing/directory_errors.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::MatchesRegex;

class DirectoryClaimTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(directory_.data()), nullptr); }

  DirectoryClaim Looked() const {
    DirectoryClaim claim(directory_);
    EXPECT_TRUE(claim.Look().ok());
    return claim;
  }
  DirectoryClaim Taken(const std::string& run_id, Round round) const {
    DirectoryClaim claim = Looked();
    EXPECT_TRUE(claim.Take(run_id, round).ok());
    return claim;
  }
  std::string File() const { return directory_ + "/" + std::string(DirectoryClaim::kFile); }

  std::string directory_ = testing::TempDir() + "/claimXXXXXX";
};

std::string MessageOf(const Status& status) {
  EXPECT_TRUE(IsAborted(status)) << status;
  return std::string(status.message());
}

TEST_F(DirectoryClaimTest, TheLastTakerOwnsTheDirectory) {
  const DirectoryClaim third = Taken("j", Round(3));
  EXPECT_TRUE(third.Check().ok());
  const DirectoryClaim fourth = Taken("j", Round(4));
  EXPECT_TRUE(fourth.Check().ok());
  EXPECT_THAT(MessageOf(third.Check()),
              MatchesRegex("round 4 has taken over .*/claim...... \\(process [0-9]+ on .+\\): this worker "
                           "belongs to round 3"));
  EXPECT_THAT(ListDirectory(directory_).value(), ElementsAre("claim"));
}

// A job that is started again numbers its rounds from 0.
TEST_F(DirectoryClaimTest, ALaterStartOfTheJobTakesOverWithALowerRound) {
  const DirectoryClaim before = Taken("j", Round(7));
  const DirectoryClaim restarted = Taken("j", Round(0));
  EXPECT_TRUE(restarted.Check().ok());
  EXPECT_THAT(MessageOf(before.Check()),
              MatchesRegex("round 0 has taken over .*: this worker belongs to round 7"));
}

TEST_F(DirectoryClaimTest, NamesAnotherJob) {
  const DirectoryClaim mine = Taken("mine", Round(1));
  Taken("other", Round(1));
  EXPECT_THAT(
      MessageOf(mine.Check()),
      MatchesRegex(
          "round 1 of job \"other\" has taken over .*: this worker belongs to round 1 of job \"mine\""));
}

// A writer that was suspended after Look() must not take the directory from a newer round.
TEST_F(DirectoryClaimTest, TakeFailsIfAnotherWriterTookTheDirectorySinceLook) {
  Taken("j", Round(2));
  DirectoryClaim sleeper = Looked();
  const DirectoryClaim newer = Taken("j", Round(4));
  EXPECT_THAT(MessageOf(sleeper.Take("j", Round(3))),
              MatchesRegex("round 4 has taken over .*: this worker belongs to round 3"));
  EXPECT_TRUE(newer.Check().ok());
  EXPECT_THAT(ListDirectory(directory_).value(), ElementsAre("claim"));
}

// The first attempt replaces the file and fails afterwards, when it syncs the directory.
TEST_F(DirectoryClaimTest, TakeSucceedsAfterAnAttemptThatFailedAfterTheRename) {
  Taken("j", Round(2));
  DirectoryClaim claim = Looked();
  Status first;
  WithDirectoryErrors([&] { first = claim.Take("j", Round(3)); });
  EXPECT_THAT(first.message(), testing::HasSubstr("cannot open"));
  ASSERT_THAT(ReadFile(File()).value(), testing::HasSubstr("\"round\":3"));

  const Status second = claim.Take("j", Round(3));
  EXPECT_TRUE(second.ok()) << second;
  EXPECT_TRUE(claim.Check().ok());
  EXPECT_THAT(ReadFile(File()).value(), testing::HasSubstr(claim.nonce()));
}

TEST_F(DirectoryClaimTest, TwoClaimsOfOneProcessAreDistinct) {
  const DirectoryClaim first = Taken("j", Round(3));
  Taken("j", Round(3));
  EXPECT_TRUE(IsAborted(first.Check()));
}

TEST_F(DirectoryClaimTest, CheckSucceedsInAnEmptiedDirectory) {
  const DirectoryClaim claim = Taken("j", Round(3));
  ASSERT_EQ(unlink(File().c_str()), 0);
  EXPECT_TRUE(claim.Check().ok());
}

TEST_F(DirectoryClaimTest, AnInvalidClaimFileRefusesTheOwnerAndIsReplacedByTheNextTake) {
  const DirectoryClaim before = Taken("j", Round(3));
  ASSERT_TRUE(WriteFile(File(), "\xff not JSON").ok());
  EXPECT_THAT(MessageOf(before.Check()), MatchesRegex("round \\? of job .*"));
  EXPECT_TRUE(Taken("j", Round(4)).Check().ok());
}

TEST_F(DirectoryClaimTest, ADeeplyNestedClaimFileIsOnlyInvalid) {
  const DirectoryClaim before = Taken("j", Round(3));
  const std::string nested = "{\"round\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
  ASSERT_TRUE(WriteFile(File(), nested).ok());
  EXPECT_THAT(MessageOf(before.Check()), MatchesRegex("round \\? of job .*"));
}

TEST_F(DirectoryClaimTest, SystemErrorsNameTheFile) {
  DirectoryClaim claim = Looked();
  ASSERT_EQ(rmdir(directory_.c_str()), 0);
  const Status status = claim.Take("j", Round(1));
  EXPECT_TRUE(IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(directory_ + "/.claim."));
}

}  // namespace
}  // namespace ddprun
