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

StatusOr<StateBuffer> StateBuffer::Create(ArrayOps& ops, std::string_view optimizer, std::string_view what,
                                          std::span<const Parameter> parameters) {
  constexpr int64_t kSize = SizeOf(DType::kFloat32);
  int64_t num_elems = 0;
  for (const Parameter& p : parameters) num_elems += p.value.count;
  StateBuffer buffer;
  DDPRUN_ASSIGN_OR_RETURN(buffer.memory_, ops.Allocate(num_elems * kSize),
                          StrCat("the state ", optimizer, ".", what));
  auto* next = static_cast<float*>(buffer.memory_.get());
  for (const Parameter& p : parameters) {
    buffer.tensors_.push_back({StateTensorName(optimizer, what, p.name),
                               p.shape,
                               {next, p.value.count, DType::kFloat32, ops.device()}});
    next += p.value.count;
  }
  return buffer;
}

}  // namespace ddprun
