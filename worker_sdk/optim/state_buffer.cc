#include "worker_sdk/optim/state_buffer.h"

#include "base/check.h"
#include "worker_sdk/core/strings.h"

namespace ddprun {

std::string StateTensorName(std::string_view optimizer, std::string_view what, std::string_view parameter) {
  DDPRUN_CHECK(optimizer.find_first_of("./") == optimizer.npos && what.find('/') == what.npos &&
                   parameter.find('/') == parameter.npos,
               "a name that cannot be parsed: " << optimizer << "." << what << "/" << parameter);
  return StrCat(optimizer, ".", what, "/", parameter);
}

StateBuffer::StateBuffer(std::string_view optimizer, std::string_view what,
                         std::span<const Parameter> parameters) {
  int64_t num_elems = 0;
  for (const Parameter& p : parameters) num_elems += p.value.count;
  values_.resize(num_elems);
  float* next = values_.data();
  for (const Parameter& p : parameters) {
    tensors_.push_back(
        {StateTensorName(optimizer, what, p.name), p.shape, {next, p.value.count, DType::kFloat32}});
    next += p.value.count;
  }
}

}  // namespace ddprun
