# The entry point for people. `make run` and `make test` are all that a fresh machine needs; both first install missing
# packages (as root; otherwise they print the command that does).

MODEL  ?= models/stories
PROMPT ?= Once upon a time
JOBS   ?= $(shell tools/build_jobs)
# The number of tests that run at once: twice the number of jobs, because many tests wait for timeouts and for other
# processes instead of computing.
TEST_JOBS ?= $(shell expr 2 '*' $(JOBS))

.PHONY: run command build test test-user test-all bench docs tidy package deb format clean packages test_packages configure_tests

packages:
	@tools/install_packages packages.txt

test_packages:
	@tools/install_packages packages.txt tests/packages.txt tests/multi_host/packages.txt

# Without the tests, whose packages the command does not need.
build/release/build.ninja: CMakeLists.txt CMakePresets.json | packages
	cmake --preset release -DANYACCEL_TESTS=$(if $(wildcard build/release/tests),ON,OFF)

build/%/build.ninja: CMakeLists.txt CMakePresets.json | test_packages
	cmake --preset $*

# Configures the release build with its tests.
configure_tests: test_packages
	cmake --preset release -DANYACCEL_TESTS=ON

# Builds the command alone.
command: packages build/release/build.ninja
	@cmake --build build/release -j $(JOBS) --target anyaccel_cli

# Builds the command with `anyaccel bench` and `anyaccel conformance`, which `make run` does not need.
build: packages build/release/build.ninja
	@cmake --build build/release -j $(JOBS) --target anyaccel_cli anyaccel_checks

# Generates a story with the bundled model on the detected accelerator.
run: command
	@build/release/bin/anyaccel generate --model $(MODEL) --prompt "$(PROMPT)"

# Runs all tests except those that take half a CPU minute or more each (labelled "long").
test: configure_tests
	cmake --build build/release -j $(JOBS)
	ctest --test-dir build/release --output-on-failure -j $(TEST_JOBS) -LE long --output-junit results.xml
	@tools/list_skipped build/release
	@tools/support_table --check --results build/release/results.xml

# Runs the tests of the finished release build again, as an unprivileged user with the usual limits. It leaves out tests
# that take long and give the same result for every user (kernels, the numbers of ops, models and training, grammars, their repeats
# on other accelerators, the command on simulated runtimes, checks of the source) and tests that only root can run.
SAME_FOR_EVERYBODY = ^[a-z]*_(simulated|virtual)/|^xpu_|^(multi_host|source)/|/(faults|delays|coverage|calls|gpu_check)$$|^command/(package|debian_packages|conformance|json_errors)$$|(optimizers|quantizer|spirv|launch_allocations|every_builder|sparse_attn|evoformer_attn|ragged_ops|inference_cutlass|families|importance|quantized_ranks|chat_template|gemm_amx|matmul|onednn|cublaslt|cpu_attention|attention_kernels|cpu_ops|cpu_copy|cpu_sampling|fused_ops|fused_cases|agreement|tensor_parallel_model|tokenizer|tokenizer_regex|config_table|gguf|device_group|level_zero_driver|quantized_linear|grammar|speculation)_test$$|/batch_independence|^(lazy/generation|nn/training)_test$$|^(npu|mlu|sdaa|hpu|mps)/text$$
test-user:
	tools/test_user build/release --output-on-failure -j $(TEST_JOBS) -LE '^(kernels|source|simulators|long)$$' -E '$(SAME_FOR_EVERYBODY)'

# Runs what `make test` leaves out: the long tests, more seeds, fuzzing, and sanitizers (except kernels, and tests that repeat for
# one more accelerator what the same code of the host has done on another).
test-all: configure_tests build/asan/build.ninja build/tsan/build.ninja build/fuzz/build.ninja
	cmake --build build/release -j $(JOBS)
	ctest --test-dir build/release --output-on-failure -j $(TEST_JOBS) -L long
	@tools/list_skipped build/release
	ANYACCEL_TEST_SEEDS=3 ANYACCEL_TEST_DELAY_SEEDS=20 ANYACCEL_TEST_KILLS=50 ctest --test-dir build/release --output-on-failure -j $(TEST_JOBS) -R '^(xpu|cuda|npu|mlu|sdaa|hpu|mps)/delays|launcher/kills|^(cpu|ops|runtime)/(cpu_|matmul|fused_ops|quantizer|caching_allocator).*test$$'
	cmake --build build/fuzz -j $(JOBS) --target fuzzers
	tools/fuzz build/fuzz -max_total_time=30
	cmake --build build/tsan -j $(JOBS) --target thread_tests
	ctest --test-dir build/tsan --output-on-failure -j $(JOBS) -L threads
	@tools/list_skipped build/tsan
	cmake --build build/asan -j $(JOBS)
	ANYACCEL_TEST_DELAY_SEEDS=5 ctest --test-dir build/asan --output-on-failure -j $(TEST_JOBS) -LE '^repeats$$' -E '^cuda/info$$'
	@tools/list_skipped build/asan

# Runs clang-tidy over everything and compiles each public header alone; the tests check only what the last commits changed.
tidy: configure_tests
	tools/check_tidy build/release --all
	tools/check_headers $(CXX) $(CC) --all

# Runs the benchmarks once and writes the figures with their ceilings to benchmarks/results/; the file is named after
# the date and the machine.
bench: test_packages build
	cmake --build build/release -j $(JOBS) --target anyaccel_train
	tools/bench

# Creates a tarball that runs on any x86-64 Linux with glibc 2.36 or newer.
package: build configure_tests
	cmake --build build/release -j $(JOBS) --target packaged_tests anyaccel_nn
	tools/package

# Creates Debian packages of the command, the library and the files that it reads at run time: build/debian/*.deb.
deb: test_packages build
	cmake --build build/release -j $(JOBS) --target anyaccel_nn
	tools/debian_packages

# Generates the reference of the headers and the pages, as one site: build/docs/html/index.html.
docs: test_packages
	tools/make_docs

format:
	tools/check_format --write

clean:
	rm -rf build
