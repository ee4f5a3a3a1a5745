//! The guideline of the off-path study: criteria, then host cores, then rates.

use super::*;

/// [OffPath23 4.2] Criteria come first, whatever another mix would give; and what they leave equal
/// goes to fewer host cores.
#[test]
fn criteria_come_before_rate_and_ties_go_to_fewer_host_cores() {
    let of = |criteria: &str, order: [&str; 2]| {
        let text = format!("name = \"x\"\ncriteria = [\"{criteria}\"]\n{}{}", order[0], order[1]);
        plan(&read(&text), false).unwrap()
    };
    let one = "[[alternative]]\nname = \"by_host\"\nsteps = [{ path = \"1\", verb = \"SEND\", \
               bytes = \"16B\", reply = \"64B\" }]\n";
    let other = "[[alternative]]\nname = \"by_soc\"\nsteps = [{ path = \"2\", verb = \"SEND\", \
                 bytes = \"16B\", reply = \"64B\" }]\n";
    for order in [[one, other], [other, one]] {
        let plan = of("network", order);
        let first = &plan.candidates[plan.ranked[0]].name;
        assert_eq!(first, "by_soc", "as many bytes, and no host core");
        assert!(plan.recommended().mops[plan.ranked[0]] > 0.0);
    }
    let plan = plan(&read(EXAMPLES[0]), false).unwrap();
    assert_eq!(plan.recommended(), &plan.greedy);
    let json = plan.report().unwrap().json();
    assert_eq!(json["recommended"], "greedy");
    assert_eq!(json["best_is_more_by"].is_null(), plan.greedy_is_best);
}
