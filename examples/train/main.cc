// `train`: trains a byte-level GPT, alone or under a launcher. Exit codes: 0 success, 1 failure, 2 usage
// error.
#include <iostream>
#include <memory>

#include "ddprun/context.h"
#include "ddprun/status.h"
#include "examples/train/options.h"
#include "examples/train/run.h"
#include "worker_sdk/context_state.h"
#include "worker_sdk/failure/error_file.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;

int Fail(const ddprun::Status& status, int code) {
  std::cerr << "train: " << ddprun::LastWords(status) << std::endl;
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace ddprun;
  const StatusOr<train::Options> options = train::ParseOptions(argc, argv);
  if (!options.ok()) return Fail(options.status(), kUsage);
  if (options->help) {
    std::cout << train::HelpText();
    return 0;
  }
  StatusOr<Context> context = Context::FromEnvironment();
  if (!context.ok()) return Fail(context.status(), kFailed);
  const Status usage = train::ValidateForWorld(*options, context->world_size());
  const Status status = usage.ok() ? train::Run(*options, *context, std::cout, std::cerr) : usage;
  if (status.ok()) return 0;
  LeaveErrorFile(internal::ContextState::Of(*context).env.error_file, status);
  return Fail(status, usage.ok() ? kFailed : kUsage);
}
