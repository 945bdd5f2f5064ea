#include "worker_sdk/snapshot/sha256.h"

// The functions of one digest instead of EVP's: EVP would link 4 MB of OpenSSL's other algorithms into the library.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <string_view>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

struct Sha256::Impl {
  SHA256_CTX context;
};

// OpenSSL documents that these functions return 1.
Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  DDPRUN_CHECK(SHA256_Init(&impl_->context) == 1, "SHA256_Init");
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(std::string_view bytes) {
  DDPRUN_CHECK(SHA256_Update(&impl_->context, bytes.data(), bytes.size()) == 1, "SHA256_Update");
  return *this;
}

Sha256::Digest Sha256::Finish() {
  Digest digest;
  DDPRUN_CHECK(SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &impl_->context) == 1,
               "SHA256_Final");
  return digest;
}

Sha256::Digest Sha256Of(std::string_view bytes) { return Sha256().Update(bytes).Finish(); }

std::string ToHex(const Sha256::Digest& digest) {
  return ToHex(std::string_view(digest.data(), digest.size()));
}

}  // namespace ddprun
