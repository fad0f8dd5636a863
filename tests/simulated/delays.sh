# Random delays before every command, and other orders of a kernel's items, change nothing and show no race: as many seeds as
# ANYACCEL_TEST_DELAY_SEEDS says (8).
. "$(dirname "$0")/common.sh"
export SIM_STRICT=abort SIM_DELAY_US=20

run || fail "without delays: $(cat "$folder/err")"
check_report "without delays"
whole=$(cat "$folder/out")
for seed in $(seq 1 "${ANYACCEL_TEST_DELAY_SEEDS:-8}"); do
  SIM_SEED=$seed run || fail "seed $seed: $(cat "$folder/err")"
  [ "$whole" = "$(cat "$folder/out")" ] || fail "seed $seed: another text: $(cat "$folder/out")"
  check_report "seed $seed"
done
echo "delays: ok, ${ANYACCEL_TEST_DELAY_SEEDS:-8} seeds"
