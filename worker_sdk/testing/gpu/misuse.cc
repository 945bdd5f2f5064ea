#include "worker_sdk/testing/gpu/misuse.h"

#include <cstdio>
#include <cstdlib>

#include "worker_sdk/testing/gpu/settings.h"

namespace ddprun::stand_in {

void AbortForMisuse(const std::string& message) {
  std::fprintf(stderr, "GPU stand-in: misuse: %s (DDPRUN_STAND_IN_SEED=%llu)\n", message.c_str(),
               static_cast<unsigned long long>(TheSettings().seed));
  std::abort();
}

}  // namespace ddprun::stand_in
