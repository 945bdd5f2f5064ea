#include "launcher/stacks/folded.h"

#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kPySpy[] =
    "Process 21655: /venv/bin/python train.py\n"
    "Python v3.11.2 (/usr/bin/python3.11)\n"
    "\n"
    "Thread 21655 (idle): \"MainThread\"\n"
    "    all_reduce (/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4181)\n"
    "    _logger.<locals>.wrapper (/usr/lib/python3/dist-packages/torch/distributed/c10d_logger.py:83)\n"
    "        Arguments:\n"
    "            x: 1\n"
    "    step (/home/me/t_torch.py:4)\n"
    "    <module> (/home/me/t_torch.py:9)\n"
    "Thread 21660 (active+gil): \"load \"er\"\n"
    "    load_batch (my (old) data.py:41)\n"
    "Thread 0x7F9E89E02740 (active)\n"
    "    run (a.py)\n"
    "Thread 21670 (idle)\n";

TEST(FoldedTest, PySpy) {
  const auto threads = ParsePySpy(kPySpy);
  ASSERT_EQ(threads.size(), 3);
  EXPECT_EQ(threads[0].thread, 21655);
  EXPECT_EQ(threads[0].name, "MainThread");
  EXPECT_THAT(threads[0].frames, ElementsAre("all_reduce (distributed_c10d.py:4181)",
                                             "_logger.<locals>.wrapper (c10d_logger.py:83)",
                                             "step (t_torch.py:4)", "<module> (t_torch.py:9)"));
  EXPECT_EQ(threads[0].program_frame, "step (t_torch.py:4)");
  EXPECT_EQ(threads[1].name, "load \"er");
  EXPECT_THAT(threads[1].frames, ElementsAre("load_batch (my (old) data.py:41)"));
  EXPECT_EQ(threads[2].thread, 0);
  EXPECT_EQ(threads[2].name, "");
}

TEST(FoldedTest, OutputThatIsCutAnywhere) {
  const std::string text = kPySpy;
  for (size_t size = 0; size < text.size(); ++size) {
    for (const ToolThread& thread : ParsePySpy(text.substr(0, size))) {
      for (const std::string& frame : thread.frames) EXPECT_EQ(frame.back(), ')') << size;
    }
  }
}

TEST(FoldedTest, Garbage) {
  EXPECT_THAT(ParsePySpy(""), IsEmpty());
  EXPECT_THAT(ParseGdb(""), IsEmpty());
  for (const char* const text : {"\n\n\n", "    f (a.py:1)\n", "Thread\n", "Thread 1\n    f (a.py:1)\n",
                                 "#0 \n", "#\n#x\n#0\n", "Thread 1 (LWP x)\n#0  f ()\n", "\xff\xfe\n"}) {
    EXPECT_THAT(ParsePySpy(text), IsEmpty()) << text;
    EXPECT_THAT(ParseGdb(text), IsEmpty()) << text;
  }
  const auto threads = ParsePySpy("Thread 1 (idle): \"\x1b[31m\"\n    f\x07 (a.py:1)\n");
  ASSERT_EQ(threads.size(), 1);
  EXPECT_EQ(threads[0].name, "?[31m");
  EXPECT_EQ(threads[0].frames[0], "f? (a.py:1)");
}

TEST(FoldedTest, Gdb) {
  const auto threads = ParseGdb(
      "warning: May not insert breakpoints\n"
      "\n"
      "Thread 1.1 (Thread 0x7f9e89e02740 (LWP 21655) \"python\"):\n"
      "#0  __futex_abstimed_wait_common64 (private=..., cancel=...) at ./nptl/futex-internal.c:57\n"
      "#1  ___pthread_cond_wait (cond=..., mutex=...) at ./nptl/pthread_cond_wait.c:618\n"
      "#2  0x00007ffa in _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE () from "
      "/lib/libstdc++.so.6\n"
      "#3  _ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE () from /x y/libtorch_cpu.so\n"
      "#4  known::Foo<int>::operator() (this=..., x=...) at foo.cc:7\n"
      "#5  ?? () from /usr/lib/libcuda.so.1\n"
      "#6  ?? () from /usr/lib/libcuda.so.1\n"
      "#7  ?? ()\n"
      "#8  <signal handler called>\n"
      "#9  main (argc=..., argv=...) at main.cc:3\n"
      "#10 __libc_start_call_main (main=...) at ../sysdeps/nptl/libc_start_call_main.h:58\n"
      "(More stack frames follow...)\n"
      "\n"
      "Thread 1.1 (Thread 0x7f9e89e02740 (LWP 21655) \"python\"):\n"
      "#0  again ()\n"
      "\n"
      "Thread 1.2 (LWP 21658):\n"
      "#0  clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  clone3 () from /lib/x86_64-linux-gnu/libc.so.6\n"
      "Thread 2 (process 21659 \"a (b)\"):\n"
      "#0  f () at x.c:1\n"
      "Thread 3 (LWP 21660):\n"
      "[Inferior 1 (process 21655) detached]\n");
  ASSERT_EQ(threads.size(), 3);
  EXPECT_EQ(threads[0].thread, 21655);
  EXPECT_EQ(threads[0].name, "python");
  EXPECT_THAT(threads[0].frames,
              ElementsAre("std::condition_variable::wait", "c10d::Work::wait", "known::Foo<int>::operator()",
                          "?? (libcuda.so.1)", "<signal handler called>", "main"));
  EXPECT_THAT(threads[1].frames, ElementsAre("clock_nanosleep", "clone3"));
  EXPECT_EQ(threads[1].name, "");
  EXPECT_EQ(threads[2].thread, 21659);
  EXPECT_EQ(threads[2].name, "a (b)");
}

TEST(FoldedTest, ShortFunctions) {
  const std::pair<const char*, const char*> kCases[] = {
      {"main", "main"},
      {"_ZN1a1bEi", "a::b"},
      {"_ZN1a1bEi.isra.0", "a::b"},
      {"_ZnotMangled", "_ZnotMangled"},
      {"void f<int>(int)", "f<int>"},
      {"std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector<...>::push_back"},
      {"std::vector<int>::size() const", "std::vector<int>::size"},
      {"(anonymous namespace)::f(int)", "(anonymous namespace)::f"},
      {"gloo::(anonymous namespace)::allreduce(int (*)(int))", "gloo::(anonymous namespace)::allreduce"},
      {"std::ostream& operator<< <char>(std::ostream&, char)", "operator<< <char>"},
      {"A::operator()(int) const", "A::operator()"},
      {"A::operator->() const", "A::operator->"},
      {"A::operator bool() const", "A::operator bool"},
      {"f()::{lambda(int, A<b>)#2}::operator()(int) const", "f::{lambda#2}::operator()"},
      {"f() const::{lambda()#1}::operator()() const", "f::{lambda#1}::operator()"},
      {"f(int) [clone .cold]", "f"},
      {"g[abi:cxx11](int)", "g[abi:cxx11]"},
      {"A<&(B::operator->())>::f(int)", "A<&(B::operator->())>::f"},
      {"my_operator_x", "my_operator_x"},
      {"<signal handler called>", "<signal handler called>"},
      {"a<b", "a<b"},
      {"))", "))"},
      {"(((", "((("},
  };
  for (const auto& [name, expected] : kCases) EXPECT_EQ(ShortFunction(name), expected) << name;
  EXPECT_LE(ShortFunction(std::string(100'000, 'x')).size(), 300);
  EXPECT_LE(ShortFunction(std::string(100'000, '<')).size(), 300);
}

TEST(FoldedTest, PythonFramesReplaceTheInterpreter) {
  const std::vector<std::string> native = {"ncclGroupEnd",
                                           "THPVariable_add",
                                           "cfunction_call",
                                           "_PyObject_MakeTpCall",
                                           "_PyEval_EvalFrameDefault",
                                           "PyEval_EvalCode",
                                           "main"};
  EXPECT_THAT(WithPython(native, {"add (a.py:1)", "<module> (a.py:3)"}),
              ElementsAre("ncclGroupEnd", "THPVariable_add", "add (a.py:1)", "<module> (a.py:3)"));
  EXPECT_THAT(WithPython(native, {}), ElementsAre("ncclGroupEnd", "THPVariable_add", "[Python]"));
  EXPECT_THAT(WithPython({"f", "main"}, {"g (a.py:1)"}), ElementsAre("f", "main"));
  EXPECT_THAT(WithPython({}, {"g (a.py:1)"}), ElementsAre("g (a.py:1)"));
}

TEST(FoldedTest, Fold) {
  EXPECT_EQ(Fold({"a", "b", "c"}, 5), "a\nb\nc");
  EXPECT_EQ(Fold({"a", "b", "cd"}, 5), "a\n...");
  EXPECT_EQ(Fold({"abc", "d"}, 2), "ab");
  EXPECT_EQ(Fold({}, 2), "");
  for (size_t limit = 5; limit < 100; ++limit) {
    EXPECT_LE(Fold(std::vector<std::string>(50, "abc"), limit).size(), limit);
  }
}

}  // namespace
}  // namespace ddprun
