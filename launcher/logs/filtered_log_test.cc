#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "launcher/logs/log_file.h"
#include "launcher/logs/testing/output_fixture.h"

namespace ddprun {
namespace {

class FilteredLogTest : public OutputFixture {
 protected:
  std::shared_ptr<FilteredLog> Open(std::vector<std::string> filters) {
    return OpenFiltered(path_, std::move(filters));
  }
  std::string Contents() {
    RunAll();
    return ddprun::Contents(path_);
  }

  const std::string path_ = dir_ + "/filtered_stdout.log";
};

TEST_F(FilteredLogTest, WritesMatchingLinesOfAllStreams) {
  const auto log = Open({"apple", "or"});
  FilteredStream zero(log, "[default0]:"), one(log, "[default1]:");
  zero.Feed("an apple\na pear\n");
  one.Feed("oranges\r\napp");
  zero.Feed("more\n");
  EXPECT_EQ(Contents(), "[default0]:an apple\n[default1]:oranges\n[default0]:more\n")
      << "each line must be written as soon as it is complete";
  one.Feed("le pie");
  zero.Finish();
  one.Finish();
  EXPECT_EQ(Contents(), "[default0]:an apple\n[default1]:oranges\n[default0]:more\n[default1]:apple pie\n");
}

TEST_F(FilteredLogTest, DoesNotMatchThePrefix) {
  FilteredStream stream(Open({"default"}), "[default0]:\n");
  stream.Feed("x\nthe default\n");
  EXPECT_EQ(Contents(), "[default0]:\nthe default\n");
}

TEST_F(FilteredLogTest, AnEmptyFilterMatchesEveryLine) {
  FilteredStream stream(Open({""}), "p:");
  stream.Feed("x\n\n");
  EXPECT_EQ(Contents(), "p:x\np:\n");
}

}  // namespace
}  // namespace ddprun
