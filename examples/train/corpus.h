// The training text and its samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ddprun::train {

struct Corpus {
  std::string source;                // "data/text.txt", "the built-in text"
  std::string bytes;                 // all files, concatenated
  std::string sha256;                // of `bytes`, in hexadecimal
  int64_t num_files = 0;             // files read
  std::vector<std::string> skipped;  // "PATH: why", for files in a directory

  // Samples have context + 1 bytes; each starts `context` bytes after the previous one.
  [[nodiscard]] int64_t NumSamples(int context) const;
  // REQUIRES: 0 <= sample < NumSamples(context)
  [[nodiscard]] absl::Span<const uint8_t> Sample(int64_t sample, int context) const;
};

// Reads a file, or all regular files below a directory in path order; in a directory, symbolic links, special
// files and files with NUL bytes are skipped. An empty `path` selects the text of builtin_text.h.
//   Errors: those of the system, naming the path; kFailedPrecondition: the text is empty, or the path is
//           neither a file nor a directory.
absl::StatusOr<Corpus> LoadCorpus(const std::string& path);

}  // namespace ddprun::train
