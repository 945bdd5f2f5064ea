#include "launcher/report/program_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "launcher/report/python_exception.h"
#include "launcher/report/terminal_text.h"

namespace ddprun {
namespace {

// The following tracebacks were printed by Python 3.11 and PyTorch 1.13.
constexpr char kPlain[] = R"(Traceback (most recent call last):
  File "/job/plain.py", line 4, in <module>
    load(3)
  File "/job/plain.py", line 2, in load
    raise ValueError("bad batch")
ValueError: bad batch
)";
constexpr char kChained[] = R"(Traceback (most recent call last):
  File "/job/chained.py", line 3, in step
    return {}["loss"]
           ~~^^^^^^^^
KeyError: 'loss'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/chained.py", line 8, in <module>
    step(7)
  File "/job/chained.py", line 5, in step
    raise RuntimeError(f"step {n} failed") from e
RuntimeError: step 7 failed

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/chained.py", line 10, in <module>
    None + 1
    ~~~~~^~~
TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'
)";
constexpr char kGroup[] = R"(  + Exception Group Traceback (most recent call last):
  |   File "/job/group.py", line 10, in <module>
  |     raise ExceptionGroup("loaders", errors)
  | ExceptionGroup: loaders (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/job/group.py", line 7, in <module>
    |     f()
    |   File "/job/group.py", line 2, in read
    |     raise OSError("disk")
    | OSError: disk
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/job/group.py", line 7, in <module>
    |     f()
    |   File "/job/group.py", line 5, in <lambda>
    |     for f in (read, lambda: int("x")):
    |                             ^^^^^^^^
    | ValueError: invalid literal for int() with base 10: 'x'
    +------------------------------------
)";
constexpr char kSyntax[] = R"(  File "/job/syntax.py", line 1
    x = (
        ^
SyntaxError: '(' was never closed
)";
constexpr char kPool[] = R"(multiprocessing.pool.RemoteTraceback: 
"""
Traceback (most recent call last):
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 125, in worker
    result = (True, func(*args, **kwds))
                    ^^^^^^^^^^^^^^^^^^^
  File "/job/pool.py", line 3, in f
    return 1 / x
           ~~^~~
ZeroDivisionError: division by zero
"""

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/pool.py", line 6, in <module>
    p.map(f, [0])
  File "/usr/lib/python3.11/multiprocessing/pool.py", line 774, in get
    raise self._value
ZeroDivisionError: division by zero
)";
constexpr char kLoader[] = R"(Traceback (most recent call last):
  File "/job/loader.py", line 5, in <module>
    for _ in torch.utils.data.DataLoader(D(), num_workers=1): pass
  File "/usr/lib/python3/dist-packages/torch/_utils.py", line 543, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 302, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/job/loader.py", line 4, in __getitem__
    def __getitem__(self, i): raise ValueError("sample 3 is torn")
                              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: sample 3 is torn

)";
constexpr char kDeep[] = R"(  File "/job/deep.py", line 2, in f
    return f(n + 1)
           ^^^^^^^^
  [Previous line repeated 996 more times]
RecursionError: maximum recursion depth exceeded
)";
constexpr char kState[] = R"(Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", line 1671, in load_state_dict
    raise RuntimeError('Error(s) in loading state_dict for {}:\n\t{}'.format(
RuntimeError: Error(s) in loading state_dict for Linear:
)"
                          "\tsize mismatch for weight: torch.Size([2, 3]), torch.Size([2, 2]).\n";
constexpr char kLocal[] = R"(Traceback (most recent call last):
  File "/job/custom.py", line 4, in f
    raise Err()
f.<locals>.Err
)";
constexpr char kInterrupt[] = R"(Traceback (most recent call last):
  File "/job/intr.py", line 2, in <module>
    os.kill(os.getpid(), signal.SIGINT)
KeyboardInterrupt
)";
constexpr char kGloo[] = R"(Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py", line 1541, in all_reduce
    work.wait()
RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:16276
)";
constexpr char kNccl[] = R"(Traceback (most recent call last):
  File "/job/dist.py", line 281, in f
    work.wait()
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, unhandled system error
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
Last error:
)";

std::string Prefixed(absl::string_view text, absl::string_view prefix) {
  return absl::StrCat(prefix, absl::StrReplaceAll(text, {{"\n", absl::StrCat("\n", prefix)}}));
}

TEST(PythonExceptionTest, FormatsTheExceptionAndItsChainInOneLine) {
  const struct {
    const char* text;
    const char* line;
  } kCases[] = {
      {kPlain, "ValueError: bad batch"},
      {kChained,
       "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int', while handling RuntimeError: "
       "step 7 "
       "failed, from KeyError: 'loss'"},
      {kGroup, "ExceptionGroup: loaders (2 sub-exceptions), the first: OSError: disk"},
      {kSyntax, "SyntaxError: '(' was never closed"},
      {kPool, "ZeroDivisionError: division by zero"},
      {kLoader, "ValueError: sample 3 is torn"},
      {kDeep, "RecursionError: maximum recursion depth exceeded"},
      {kState,
       "RuntimeError: Error(s) in loading state_dict for Linear: size mismatch for weight: torch.Size([2, "
       "3]), "
       "torch.Size([2, 2])."},
      {kLocal, "f.<locals>.Err"},
      {kInterrupt, "KeyboardInterrupt"},
      {kNccl,
       "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1287, unhandled system error "
       "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
       "prematurely."},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(ProgramError(c.text), c.line);
    EXPECT_EQ(ProgramError(absl::StrCat("step 3: loss 2.5\n", c.text, "bye\n")), c.line);
    EXPECT_EQ(ProgramError(Prefixed(c.text, "[rank0]: ")), c.line);
    EXPECT_EQ(ProgramError(absl::StrCat(kPlain, "that was handled\n", c.text)), c.line)
        << "the last exception must be returned";
  }
}

TEST(PythonExceptionTest, FindsExceptionsInTruncatedText) {
  const std::string text = kChained;
  // Remove lines from the beginning, one by one. The last exception must be found as long as the last frame
  // of its traceback is present.
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
    ++at;
    const std::string error = ProgramError(text.substr(at));
    if (at <= text.find("  File \"/job/chained.py\", line 10")) {
      EXPECT_EQ(error.substr(0, 11), "TypeError: ") << text.substr(at);
    } else {
      EXPECT_EQ(error, "") << text.substr(at);
    }
  }
  // A traceback whose end is missing is ignored.
  const std::string plain = kPlain;
  EXPECT_EQ(ProgramError(plain.substr(0, plain.find("ValueError: "))), "");
}

TEST(PythonExceptionTest, SkipsLinesOfOtherProcesses) {
  const std::string text =
      absl::StrReplaceAll(kPlain, {{"ValueError: bad", "[rank1] step 4, loss 2.3\nValueError: bad"}});
  EXPECT_EQ(ProgramError(text), "ValueError: bad batch");
  // Two ranks write to one file, each with its own prefix.
  const std::vector<std::string> a = absl::StrSplit(Prefixed(kPlain, "[rank0]: "), '\n');
  std::string mixed;
  for (const std::string& line : a) absl::StrAppend(&mixed, line, "\n[rank1]: something else\n");
  EXPECT_EQ(ProgramError(mixed), "ValueError: bad batch");
}

TEST(PythonExceptionTest, IgnoresColorsAndCarriageReturns) {
  EXPECT_EQ(ProgramError("  5%|##   |\r 10%|###  |\r\n\x1b[1mTraceback (most recent call last):\x1b[0m\n"
                         "  File \x1b[35m\"x.py\"\x1b[0m, line \x1b[35m3\x1b[0m, in f\r\n"
                         "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m\r\n"),
            "ValueError: bad");
}

TEST(PythonExceptionTest, FindsNothingInOrdinaryText) {
  for (const char* text : {"", "\n\n", "step 3\nloss 2\n", "Error: no such file\n", "  File \"x\"\n",
                           "Traceback (most recent call last):", "Traceback (most recent call last):\n",
                           "Traceback (most recent call last):\nnot an exception\n"}) {
    EXPECT_EQ(ProgramError(text), "") << text;
  }
}

TEST(PythonExceptionTest, HandlesDamagedText) {
  // Remove or duplicate each line of each text. The result must always be a single line.
  for (const char* text : {kPlain, kChained, kGroup, kSyntax, kPool, kLoader, kDeep, kState, kLocal, kNccl}) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    for (size_t i = 0; i < lines.size(); ++i) {
      for (const int times : {0, 2}) {
        std::vector<std::string> changed = lines;
        if (times == 0) {
          changed.erase(changed.begin() + static_cast<ptrdiff_t>(i));
        } else {
          changed.insert(changed.begin() + static_cast<ptrdiff_t>(i), lines[i]);
        }
        EXPECT_EQ(ProgramError(absl::StrJoin(changed, "\n")).find('\n'), std::string::npos);
      }
    }
  }
}

// The messages are from programs that were built with GCC 12, glibc 2.36 and sanitizers.
TEST(NativeErrorTest, FindsTheMessageOfAnAbortingProgram) {
  const struct {
    const char* text;
    const char* line;
  } kCases[] = {
      {"terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad batch\n",
       "std::runtime_error: bad batch"},
      {"terminate called after throwing an instance of 'int'\n", "int"},
      {"terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n",
       "std::bad_alloc: std::bad_alloc"},
      {"libc++abi: terminating due to uncaught exception of type std::runtime_error: bad batch\n",
       "std::runtime_error: bad batch"},
      {"terminate called without an active exception\n", "terminate called without an active exception"},
      {"abort: abort.cc:10: int main(int, char**): Assertion `argc==7' failed.\n",
       "abort: abort.cc:10: int main(int, char**): Assertion `argc==7' failed."},
      {"free(): double free detected in tcache 2\n", "free(): double free detected in tcache 2"},
      {"*** stack smashing detected ***: terminated\n", "*** stack smashing detected ***: terminated"},
      {"F0521 10:00:00.000000   123 loader.cc:12] Check failed: n > 0 (0 vs. 0)\n",
       "loader.cc:12: Check failed: n > 0 (0 vs. 0)"},
      {"==21847==ERROR: AddressSanitizer: heap-use-after-free on address 0x604000000013 at pc 0x55da5271f8b6 "
       "bp "
       "0x7ffee7aabae0 sp 0x7ffee7aabad8\nREAD of size 1\nSUMMARY: AddressSanitizer: heap-use-after-free "
       "x.cc\n",
       "AddressSanitizer: heap-use-after-free"},
      {"abort.cc:14:51: runtime error: load of null pointer of type 'int'\nAddressSanitizer:DEADLYSIGNAL\n"
       "==21850==ERROR: AddressSanitizer: SEGV on unknown address 0x000000000000 (pc 0x55f7589ce94a bp "
       "0x7f)\n",
       "AddressSanitizer: SEGV on unknown address 0x000000000000"},
      {"WARNING: ThreadSanitizer: data race (pid=77)\n", "ThreadSanitizer: data race"},
      {"abort.cc:15:46: runtime error: signed integer overflow: 2 + 2147483647 cannot be represented\n",
       "abort.cc:15:46: runtime error: signed integer overflow: 2 + 2147483647 cannot be represented"},
      {"Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f8ce674c2c0 (most recent call "
       "first):\n"
       "  File \"/job/fault.py\", line 3 in <module>\n",
       "Fatal Python error: Segmentation fault"},
      {"terminate called after throwing an instance of 'c10::Error'\n  what():  x\nFatal Python error: "
       "Aborted\n",
       "c10::Error: x"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(ProgramError(c.text), c.line);
    EXPECT_EQ(ProgramError(absl::StrCat(kPlain, c.text)), c.line) << "the later error must be returned";
    EXPECT_EQ(ProgramError(absl::StrCat(c.text, kPlain)), "ValueError: bad batch");
  }
}

// An error file may contain several megabytes of worst-case input.
TEST(ProgramErrorTest, IsFastForLongText) {
  const std::string message(8 << 20, 'x');
  EXPECT_EQ(ProgramError(absl::StrCat("Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n"
                                      "ValueError: ",
                                      message))
                .substr(0, 14),
            "ValueError: xx");
  std::string frames;
  while (frames.size() < 8u << 20) frames += "  File \"x.py\", line 1\n";
  EXPECT_EQ(ProgramError(frames), "");
  EXPECT_EQ(ProgramError(frames + "RecursionError: x\n"), "RecursionError: x");
  EXPECT_EQ(Wrap(message, 1).size(), message.size());
}

TEST(ProgramErrorTest, TruncatesLongMessagesAndRemovesPorts) {
  const std::string error = ProgramError(
      "terminate called after throwing an instance of 'E'\n  what():  " + std::string(10'000, 'x') + "\n");
  EXPECT_EQ(error.size(), 404u);
  EXPECT_EQ(error.substr(400), " ...");
  EXPECT_EQ(ProgramError(kGloo),
            "RuntimeError: [./gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]");
}

}  // namespace
}  // namespace ddprun
