// SHA-256, computed incrementally.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "worker_sdk/core/strings.h"

namespace ddprun {

class Sha256 {
 public:
  static constexpr size_t kBytes = 32;
  using Digest = std::array<char, kBytes>;

  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  Sha256& Update(std::string_view bytes);
  Digest Finish();  // REQUIRES: called once, after all updates

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Sha256::Digest Sha256Of(std::string_view bytes);

// Returns 64 lower-case hexadecimal digits.
std::string ToHex(const Sha256::Digest& digest);

}  // namespace ddprun
