#include "examples/train/corpus.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <span>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"

namespace ddprun::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CorpusTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/corpusXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void Write(const std::string& name, const std::string& bytes) {
    ASSERT_TRUE(WriteFile(StrCat(directory_, "/", name), bytes).ok());
  }
  std::string Error(const std::string& path) { return std::string(LoadCorpus(path).status().message()); }

  std::string directory_;
};

TEST_F(CorpusTest, HasABuiltInText) {
  const Corpus corpus = LoadCorpus("").value();
  EXPECT_GT(corpus.bytes.size(), 4000);
  EXPECT_THAT(corpus.bytes, HasSubstr("Four score and seven years ago"));
}

TEST_F(CorpusTest, ReadsAFileUnchanged) {
  const std::string bytes("a\0b\xff", 4);  // a file that is named by --data may contain any bytes
  Write("file", bytes);
  EXPECT_EQ(LoadCorpus(directory_ + "/file")->bytes, bytes);
  std::filesystem::create_symlink(directory_ + "/file", directory_ + "/link");
  EXPECT_EQ(LoadCorpus(directory_ + "/link")->bytes, bytes);
}

TEST_F(CorpusTest, ReadsTextFilesOfADirectoryInPathOrder) {
  std::filesystem::create_directories(directory_ + "/b/deep");
  Write("c", "3");
  Write("b/deep/x", "2");
  Write("a", "1");
  Write("binary", std::string("x\0", 2));
  std::filesystem::create_symlink(directory_ + "/a", directory_ + "/link");
  std::filesystem::create_directory_symlink(directory_, directory_ + "/loop");
  ASSERT_EQ(mkfifo((directory_ + "/pipe").c_str(), 0600), 0);
  const Corpus corpus = LoadCorpus(directory_).value();
  EXPECT_EQ(corpus.bytes, "123");
  EXPECT_EQ(corpus.num_files, 3);
  EXPECT_THAT(
      corpus.skipped,
      ElementsAre(directory_ + "/binary: not text, it has NUL bytes", directory_ + "/link: a symbolic link",
                  directory_ + "/loop: a symbolic link", directory_ + "/pipe: not a regular file"));
}

TEST_F(CorpusTest, ErrorsNamePathAndRemedy) {
  EXPECT_EQ(Error(directory_ + "/none"),
            StrCat("--data: there is no ", directory_, "/none: give a file or directory with text"));
  EXPECT_EQ(Error(directory_), StrCat("--data: ", directory_,
                                      " holds no text to learn (0 files read, 0 skipped): give a file or "
                                      "directory with text"));
  EXPECT_THAT(Error("/dev/null"), HasSubstr("--data: /dev/null is neither a file nor a directory"));
}

TEST_F(CorpusTest, SamplesCoverTheTextAndOverlapByOneByte) {
  Write("file", "0123456789");
  const Corpus corpus = LoadCorpus(directory_ + "/file").value();
  ASSERT_EQ(corpus.NumSamples(3), 3);
  const auto sample = [&](int64_t i) {
    const std::span<const uint8_t> bytes = corpus.Sample(i, 3);
    return std::string(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(sample(0), "0123");
  EXPECT_EQ(sample(1), "3456");
  EXPECT_EQ(sample(2), "6789");
  EXPECT_EQ(corpus.NumSamples(9), 1);
  EXPECT_EQ(corpus.NumSamples(10), 0);
}

}  // namespace
}  // namespace ddprun::train
