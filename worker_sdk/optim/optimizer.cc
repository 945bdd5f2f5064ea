#include "worker_sdk/optim/optimizer.h"

#include "absl/strings/str_cat.h"
#include "worker_sdk/comm/check.h"

namespace ddprun {

std::string StateTensorName(absl::string_view optimizer, absl::string_view what,
                            absl::string_view parameter) {
  DDPRUN_CHECK(optimizer.find_first_of("./") == optimizer.npos && what.find('/') == what.npos &&
                   parameter.find('/') == parameter.npos,
               "a name that can be taken apart again");
  return absl::StrCat(optimizer, ".", what, "/", parameter);
}

}  // namespace ddprun
