#include "launcher/held_signals.h"

#include <signal.h>

namespace ddprun {
namespace {

sigset_t HeldSignals() {
  sigset_t held;
  sigemptyset(&held);
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) sigaddset(&held, signo);
  return held;
}

}  // namespace

void HoldSignals() {
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void TakeSignals(boost::asio::signal_set& signals) {
  for (const int signo : {SIGTERM, SIGINT, SIGQUIT}) signals.add(signo);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) != 0 || hangup.sa_handler != SIG_IGN) signals.add(SIGHUP);
  const sigset_t held = HeldSignals();
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

}  // namespace ddprun
