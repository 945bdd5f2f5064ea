#include "launcher/agent/failure_display.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "launcher/report/failure_report.h"

namespace ddprun {
namespace {

constexpr size_t kStderrLines = 20;

}  // namespace

void FailureDisplay::BeginRound(Round round, bool has_other_nodes, std::string directory) {
  SettleDebts();
  round_ = round;
  has_other_nodes_ = has_other_nodes;
  directory_ = std::move(directory);
  shown_.clear();
}

void FailureDisplay::ShowNode(const std::vector<FailureRecord>& failures) {
  shown_ = FormatFailureReport(program_, failures, absl::LocalTimeZone());
  debt_ = FormatStderrTail(failures, kStderrLines);
  log_->Write(shown_);
}

void FailureDisplay::ShowJob(const JobPage& page) {
  debt_.clear();
  const bool nothing_else = !has_other_nodes_ && page.round == round_ && !shown_.empty() &&
                            page.groups.size() == 1 && page.more_failures == 0 && page.lost_nodes.empty();
  const std::string whole = FormatJobPage(page);
  log_->Write(nothing_else ? FormatWhatIsNew(page, shown_) : whole);
  if (page.round == round_) Leave(whole);
}

void FailureDisplay::Leave(const std::string& page) {
  if (directory_.empty()) return;
  const std::string path = absl::StrCat(directory_, "/failure_report.txt");
  std::ofstream file(path, std::ios::binary);
  file << page << std::flush;
  if (file) {
    log_->Say(absl::StrCat("the failure report is also in ", path));
  } else {
    log_->Say(absl::StrCat("the failure report cannot be written to ", path, ": ", std::strerror(errno)));
  }
}

void FailureDisplay::SettleDebts() {
  if (!debt_.empty()) log_->Write(debt_);
  debt_.clear();
}

}  // namespace ddprun
