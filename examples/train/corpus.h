// The text to learn, and its samples.
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
  std::string source;                // "data/text.txt", "the text that train carries"
  std::string bytes;                 // all files, one after the other
  std::string sha256;                // of bytes, in hexadecimal
  int64_t num_files = 0;             // read
  std::vector<std::string> skipped;  // "PATH: why", of a directory

  // Samples of context + 1 bytes; each begins `context` bytes after the one before.
  [[nodiscard]] int64_t NumSamples(int context) const;
  // REQUIRES: 0 <= sample < NumSamples(context)
  [[nodiscard]] absl::Span<const uint8_t> Sample(int64_t sample, int context) const;
};

// Reads a file, or all regular files below a directory in the order of their paths; of a directory, symbolic
// links, other special files and files with NUL bytes are left out. An empty `path` gives the text of
// builtin_text.h.
//   Errors: as the system says, naming the path; kFailedPrecondition: there is no byte to learn.
absl::StatusOr<Corpus> LoadCorpus(const std::string& path);

}  // namespace ddprun::train
