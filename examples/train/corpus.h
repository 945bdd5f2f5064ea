// The training text and its samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddprun/status.h"

namespace ddprun::train {

struct Corpus {
  std::string source;                // "data/text.txt", "the built-in text"
  std::string bytes;                 // all files, concatenated
  std::string sha256;                // of `bytes`, in hexadecimal
  int64_t num_files = 0;             // files read
  std::vector<std::string> skipped;  // "PATH: reason" for each file of a directory that was not read

  // Samples have context + 1 bytes; each starts `context` bytes after the previous one.
  [[nodiscard]] int64_t NumSamples(int context) const;
  // REQUIRES: 0 <= sample < NumSamples(context)
  [[nodiscard]] std::span<const uint8_t> Sample(int64_t sample, int context) const;
};

// Reads a file, or all regular files below a directory in path order. In a directory, symbolic links, special
// files and files with NUL bytes are skipped. An empty `path` selects the text of builtin_text.h.
//   Errors: those of the system, naming the path; kFailedPrecondition: the text is empty, or the path is
//           neither a file nor a directory.
StatusOr<Corpus> LoadCorpus(const std::string& path);

}  // namespace ddprun::train
