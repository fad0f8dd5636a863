# Sourced by tests/simulated/faults.sh: functions that the driver lacks.
for symbol in zeKernelCreate zeMemAllocDevice zeCommandListCreateImmediate zeEventPoolCreate zeModuleCreate; do
  expect_error "hide:$symbol" "$symbol"
done
