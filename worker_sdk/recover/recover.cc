#include "ddprun/recover.h"

#include <utility>

#include "worker_sdk/context_state.h"
#include "worker_sdk/recover/recover_in.h"

namespace ddprun {

StatusOr<Recovered> Recover(Context& context, Communicator world, const RecoverOptions& options) {
  return RecoverIn(internal::ContextState::Of(context).history, context.round(), context.node_rank(),
                   std::move(world), options);
}

}  // namespace ddprun
