#include "worker_sdk/snapshot/sha256.h"

#include <openssl/evp.h>

#include <string_view>

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(context); }
};

// OpenSSL's digest functions fail only if memory is exhausted.
Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  DDPRUN_CHECK(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1, "EVP_DigestInit_ex");
}

Sha256::~Sha256() = default;

Sha256& Sha256::Update(std::string_view bytes) {
  DDPRUN_CHECK(EVP_DigestUpdate(impl_->context, bytes.data(), bytes.size()) == 1, "EVP_DigestUpdate");
  return *this;
}

Sha256::Digest Sha256::Finish() {
  Digest digest;
  DDPRUN_CHECK(
      EVP_DigestFinal_ex(impl_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr) == 1,
      "EVP_DigestFinal_ex");
  return digest;
}

Sha256::Digest Sha256Of(std::string_view bytes) { return Sha256().Update(bytes).Finish(); }

std::string ToHex(const Sha256::Digest& digest) {
  return ToHex(std::string_view(digest.data(), digest.size()));
}

}  // namespace ddprun
