#include "worker_sdk/optim/optimizer.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun {

std::string StateTensorName(absl::string_view optimizer, absl::string_view what,
                            absl::string_view parameter) {
  DDPRUN_CHECK(optimizer.find_first_of("./") == optimizer.npos && what.find('/') == what.npos &&
                   parameter.find('/') == parameter.npos,
               "a name that cannot be parsed: " << optimizer << "." << what << "/" << parameter);
  return absl::StrCat(optimizer, ".", what, "/", parameter);
}

std::vector<ParameterView> CheckedParameters(std::vector<ParameterView> parameters) {
  std::set<absl::string_view> names;
  for (const ParameterView& p : parameters) {
    DDPRUN_CHECK(p.values.size() == p.grads.size(), "parameter " << p.name << ": " << p.values.size()
                                                                 << " values and " << p.grads.size()
                                                                 << " gradients");
    DDPRUN_CHECK(names.insert(p.name).second, "two parameters have the name " << p.name);
  }
  return parameters;
}

}  // namespace ddprun
