#include "examples/train/corpus.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "ddprun/status.h"
#include "examples/train/builtin_text.h"
#include "worker_sdk/core/strings.h"
#include "worker_sdk/snapshot/file_io.h"
#include "worker_sdk/snapshot/sha256.h"

namespace ddprun::train {
namespace {

namespace fs = std::filesystem;

// All paths below `directory` except directories, sorted.
StatusOr<std::vector<fs::path>> ListFiles(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->symlink_status().type() != fs::file_type::directory) paths.push_back(it->path());
  }
  if (error) return FileError("cannot list", directory.string(), error.value());
  std::sort(paths.begin(), paths.end());
  return paths;
}

Status AddDirectory(const std::string& directory, Corpus& corpus) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<fs::path> paths, ListFiles(directory));
  for (const fs::path& path : paths) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    if (type != fs::file_type::regular) {
      corpus.skipped.push_back(StrCat(
          path.string(), type == fs::file_type::symlink ? ": a symbolic link" : ": not a regular file"));
      continue;
    }
    DDPRUN_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path.string()));
    if (bytes.find('\0') != std::string::npos) {
      corpus.skipped.push_back(StrCat(path.string(), ": not text, it has NUL bytes"));
      continue;
    }
    corpus.bytes += bytes;
    ++corpus.num_files;
  }
  return OkStatus();
}

}  // namespace

int64_t Corpus::NumSamples(int context) const {
  return bytes.empty() ? 0 : (static_cast<int64_t>(bytes.size()) - 1) / context;
}

std::span<const uint8_t> Corpus::Sample(int64_t sample, int context) const {
  return {reinterpret_cast<const uint8_t*>(bytes.data()) + sample * context,
          static_cast<size_t>(context) + 1};
}

StatusOr<Corpus> LoadCorpus(const std::string& path) {
  Corpus corpus;
  if (path.empty()) {
    corpus.source = "the built-in text";
    corpus.bytes = std::string(BuiltinText());
    corpus.sha256 = ToHex(Sha256Of(corpus.bytes));
    return corpus;
  }
  corpus.source = path;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) {
    return NotFoundError(StrCat("--data: there is no ", path, ": give a file or directory with text"));
  }
  if (error) return FileError("--data: cannot read", path, error.value());
  if (type == fs::file_type::directory) {
    DDPRUN_RETURN_IF_ERROR(AddDirectory(path, corpus), "--data");
  } else if (type == fs::file_type::regular) {
    DDPRUN_ASSIGN_OR_RETURN(corpus.bytes, ReadFile(path), "--data");
    corpus.num_files = 1;
  } else {
    return FailedPreconditionError(
        StrCat("--data: ", path, " is neither a file nor a directory: give one with text"));
  }
  if (corpus.bytes.empty()) {
    return FailedPreconditionError(StrCat("--data: ", path, " holds no text to learn (", corpus.num_files,
                                          " files read, ", corpus.skipped.size(),
                                          " skipped): give a file or directory with text"));
  }
  corpus.sha256 = ToHex(Sha256Of(corpus.bytes));
  return corpus;
}

}  // namespace ddprun::train
