#include "launcher/held_signals.h"

#include <signal.h>

namespace ddprun {
namespace {

sigset_t HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2}) sigaddset(&held, signo);
  return held;
}

}  // namespace

void HoldSignals() {
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void TakeSignals(boost::asio::signal_set& signals, const std::vector<int>& which) {
  struct sigaction hangup {};
  const bool ignores_hangup = sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  for (const int signo : which) {
    if (signo != SIGHUP || !ignores_hangup) signals.add(signo);
  }
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

}  // namespace ddprun
