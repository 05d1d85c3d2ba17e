//! Tests the parameters against tables, exact counting, and every set of corrupted or dropped clients.

use proptest::prelude::*;

use super::*;
use crate::graph::Graph;

const ADVERSARIES: [Adversary; 2] = [Adversary::Curious, Adversary::SemiMalicious];

fn find(clients: u32, corrupted: f64, dropout: f64, adversary: Adversary) -> Result<(u32, u32), ParameterError> {
    Parameters::find(clients, &Assumptions::new(dropout, corrupted, adversary)).map(|p| (p.degree, p.threshold))
}

/// n, gamma, delta and numbers that follow from them: a row of a table.
type Row<const N: usize> = (u32, f64, f64, [u32; N]);

fn rows<const N: usize>(table: &str) -> Vec<Row<N>> {
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [n, gamma, delta, numbers @ ..] = fields.as_slice() else { panic!("{line}") };
        let gamma = if *gamma == "0.333" { 1.0 / 3.0 } else { gamma.parse().unwrap() };
        let numbers: Vec<u32> = numbers.iter().take(N).map(|f| f.parse().unwrap()).collect();
        (n.parse().unwrap(), gamma, delta.parse().unwrap(), numbers.try_into().unwrap())
    };
    table.lines().filter(|l| !l.starts_with('#')).skip(1).map(row).collect()
}

/// Degree and threshold against a curious server.
fn curious() -> Vec<Row<2>> {
    rows(include_str!("../../testdata/parameters.tsv"))
}

/// Degree, threshold, committee and quorum against a semi-malicious one.
fn semi_malicious() -> Vec<Row<4>> {
    rows(include_str!("../../testdata/semi_malicious.tsv"))
}

#[test]
fn the_table_of_an_independent_port_is_met() {
    let table = curious();
    assert_eq!(table.len(), 120);
    for (n, gamma, delta, [k, t]) in table {
        assert_eq!(find(n, gamma, delta, Adversary::Curious), Ok((k, t)), "{n} {gamma} {delta}");
    }
}

#[test]
fn the_table_that_was_counted_is_met() {
    let table = semi_malicious();
    assert!(table.len() > 90, "{}", table.len());
    for (n, gamma, delta, numbers) in table {
        let found = Parameters::find(n, &Assumptions::new(delta, gamma, Adversary::SemiMalicious)).unwrap();
        assert_eq!(found.to_parts()[1..], numbers, "{n} {gamma} {delta}");
    }
}

/// The old tables took the chance over n neighbourhoods, and nothing off for what a server can try.
#[test]
fn a_server_that_lies_costs_more_neighbours_than_it_did() {
    let old: Vec<Row<4>> = rows(include_str!("../../testdata/parameters.tsv"));
    for (n, gamma, delta, [_, _, k, t]) in old {
        match find(n, gamma, delta, Adversary::SemiMalicious) {
            Ok((degree, threshold)) => assert!(degree >= k && threshold >= t, "{n} {gamma} {delta}"),
            Err(refused) => assert!(matches!(refused, ParameterError::NoThreshold { .. }), "{refused}"),
        }
    }
}

#[test]
fn the_table_of_the_design_is_met() {
    let third = 1.0 / 3.0;
    for (n, gamma, delta, curious) in [
        (100, third, 0.05, (34, 29)),
        (100, third, 0.1, (42, 32)),
        (300, third, 0.1, (78, 56)),
        (1000, third, 0.05, (78, 60)),
        (1000, third, 0.1, (102, 72)),
        (6500, third, 0.05, (92, 70)),
        (6500, third, 0.1, (124, 87)),
        (6500, 0.2, 0.1, (78, 50)),
        (6500, 0.1, 0.1, (54, 31)),
        (6500, 0.05, 0.1, (42, 21)),
    ] {
        assert_eq!(find(n, gamma, delta, Adversary::Curious), Ok(curious), "{n} {gamma} {delta}");
    }
    let semi_malicious = |n| {
        let assumptions = Assumptions::new(0.1, third, Adversary::SemiMalicious);
        Parameters::find(n, &assumptions).unwrap().to_parts()
    };
    assert_eq!(semi_malicious(1000), [1000, 310, 252, 256, 210]);
    assert_eq!(semi_malicious(6500), [6500, 476, 385, 343, 281]);
}

#[test]
fn what_no_graph_withstands_is_refused_with_the_reason() {
    let third = 1.0 / 3.0;
    for (n, gamma, delta, adversary, reason) in [
        (0, 0.1, 0.1, Adversary::Curious, "the number of clients must be from 3 to 1048576, got 0"),
        (2, 0.0, 0.0, Adversary::Curious, "the number of clients must be from 3 to 1048576, got 2"),
        (MOST_CLIENTS + 1, 0.0, 0.0, Adversary::Curious, "change the size of the cohort"),
        (u32::MAX, 0.0, 0.0, Adversary::Curious, "change the size of the cohort"),
        (1000, 0.1, 1.0, Adversary::Curious, "the drop-out fraction must be at least 0 and less than 1, got 1"),
        (1000, 0.1, -1.0, Adversary::Curious, "the drop-out fraction must be at least 0 and less than 1, got -1"),
        (1000, f64::NAN, 0.1, Adversary::Curious, "the corrupted fraction must be at least 0 and less than 1, got NaN"),
        (1000, 0.1, f64::INFINITY, Adversary::Curious, "less than 1, got inf"),
        (1000, 0.5, 0.5, Adversary::Curious, "corrupted + dropout must be at most 0.9"),
        (1000, 0.5, 0.5, Adversary::SemiMalicious, "corrupted + 2 dropout must be at most 0.9"),
        (1000, 0.33, 0.33, Adversary::SemiMalicious, "over-select so that fewer drop out"),
        (3, third, third, Adversary::Curious, "fewer than two honest ones may remain"),
        (10, 0.5, 0.4, Adversary::Curious, "use more clients, or plan for fewer drop-outs"),
        (3, 0.0, 0.4, Adversary::Curious, "a threshold of 2, but with 1 dropped only 1 others"),
        (
            4,
            0.3,
            0.25,
            Adversary::SemiMalicious,
            "a semi-malicious server with 1 corrupted clients needs a threshold of 3",
        ),
    ] {
        let refused = find(n, gamma, delta, adversary).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn bits_out_of_range_are_refused() {
    let assumptions = Assumptions::new(0.1, 0.1, Adversary::Curious);
    for (security_bits, failure_bits, reason) in [
        (0, 20, "the security bits must be from 1 to 128, got 0"),
        (129, 20, "the security bits must be from 1 to 128, got 129"),
        (40, 0, "the failure bits must be from 1 to 128, got 0"),
        (40, u32::MAX, "the failure bits must be from 1 to 128"),
    ] {
        let refused = Parameters::find(100, &Assumptions { security_bits, failure_bits, ..assumptions }).unwrap_err();
        assert!(refused.to_string().contains(reason), "{refused}");
    }
    let floor = Floor { security_bits: 129, ..Floor::default() };
    let parameters = Parameters::find(1000, &assumptions).unwrap();
    assert_eq!(
        parameters.check_floor(&floor).unwrap_err().to_string(),
        "the security bits must be from 0 to 128, got 129"
    );
    let floor = Floor { corrupted: f64::NAN, ..Floor::default() };
    assert!(matches!(parameters.check_floor(&floor), Err(ParameterError::Fraction { what: "corrupted", .. })));
}

/// Fractions that are whole numbers of clients for some n, and others.
const FRACTIONS: [f64; 10] = [0.0, 0.01, 0.05, 0.1, 0.2, 0.25, 1.0 / 3.0, 0.4, 0.5, 0.8];

#[test]
fn few_clients_get_what_counting_gives_them_or_a_reason() {
    let (mut found, mut refused, mut complete) = (0, 0, 0);
    for n in 3..=80 {
        for (gamma, delta) in FRACTIONS.iter().flat_map(|g| FRACTIONS.map(|d| (*g, d))) {
            for adversary in ADVERSARIES {
                let assumptions = Assumptions::new(delta, gamma, adversary);
                if assumptions.check().is_err() {
                    continue;
                }
                let fast = Parameters::find(n, &assumptions);
                let slow = exact::find(n, &assumptions);
                assert_eq!(fast.clone().ok().map(|p| (p.degree, p.threshold)), slow, "{n} {assumptions:?}");
                match fast {
                    Ok(p) => {
                        found += 1;
                        complete += u32::from(p.is_complete());
                        assert_eq!(Parameters::try_from(p.to_parts()), Ok(p));
                    }
                    Err(
                        ParameterError::NoCompany { .. }
                        | ParameterError::NoThreshold { .. }
                        | ParameterError::NoQuorum { .. },
                    ) => refused += 1,
                    Err(e) => panic!("{n} {assumptions:?}: {e}"),
                }
            }
        }
    }
    assert!(found > 5000 && refused > 10 && complete > 100, "{found} {refused} {complete}");
}

#[test]
fn other_bits_get_what_counting_gives_them() {
    for (security_bits, failure_bits) in [(1, 1), (3, 5), (10, 3), (20, 30)] {
        for (n, adversary) in (3..=70).flat_map(|n| ADVERSARIES.map(|a| (n, a))) {
            for (gamma, delta) in [(0.1, 0.1), (0.3, 0.05), (0.25, 0.2), (0.0, 0.3)] {
                let assumptions =
                    Assumptions { security_bits, failure_bits, ..Assumptions::new(delta, gamma, adversary) };
                let fast = Parameters::find(n, &assumptions).ok().map(|p| (p.degree, p.threshold));
                assert_eq!(fast, exact::find(n, &assumptions), "{n} {assumptions:?}");
            }
        }
    }
}

/// All sets of `size` of the first `n` numbers, as bits.
fn sets(n: u32, size: u32) -> impl Iterator<Item = u32> {
    (0_u32..1 << n).filter(move |set| set.count_ones() == size)
}

/// The neighbours of each client, as bits.
fn neighbourhoods(graph: &Graph, n: u32) -> Vec<u32> {
    (0..n).map(|i| graph.neighbours(i).into_iter().fold(0, |set, j| set | 1 << j)).collect()
}

fn is_connected(neighbours: &[u32], among: u32) -> bool {
    let mut reached = among & among.wrapping_neg();
    loop {
        let next =
            (0..neighbours.len()).filter(|i| reached >> i & 1 == 1).fold(reached, |r, i| r | neighbours[i] & among);
        if next == reached {
            return reached == among;
        }
        reached = next;
    }
}

#[test]
fn with_few_clients_no_set_of_corrupted_and_dropped_does_harm() {
    // With so few clients whatever can happen at all is likelier than 2^-20 / n: nothing bad may be possible.
    for n in 3..=11 {
        for (gamma, delta) in [(0.0, 0.0), (0.1, 0.1), (0.2, 0.1), (1.0 / 3.0, 0.1), (0.1, 0.3), (0.4, 0.2), (0.0, 0.4)]
        {
            for adversary in ADVERSARIES {
                let assumptions = Assumptions::new(delta, gamma, adversary);
                let Ok(parameters) = Parameters::find(n, &assumptions) else { continue };
                let neighbours = neighbourhoods(&Graph::new(&parameters, &[7; 32]), n);
                let (k, t) = (parameters.degree, parameters.threshold);
                let everybody = (1 << n) - 1;
                for corrupted in sets(n, assumptions.most_corrupted(n)) {
                    for i in (0..n as usize).filter(|i| corrupted >> i & 1 == 0) {
                        let c = (neighbours[i] & corrupted).count_ones();
                        let open = match adversary {
                            Adversary::Curious => t <= c,
                            Adversary::SemiMalicious => 2 * t <= k + c,
                        };
                        assert!(!open, "{n} {assumptions:?}");
                    }
                    for dropped in sets(n, assumptions.most_dropped(n)) {
                        assert!(is_connected(&neighbours, everybody & !corrupted & !dropped), "{n} {assumptions:?}");
                    }
                }
                for dropped in sets(n, assumptions.most_dropped(n)) {
                    let fewest = neighbours.iter().map(|of| (of & !dropped).count_ones()).min().unwrap();
                    assert!(fewest >= t, "{n} {assumptions:?}");
                }
            }
        }
    }
}

#[test]
fn the_bounds_hold_for_every_ring_that_can_be_counted() {
    // The chance over all sets of corrupted or gone clients, which is the chance over all rings for one set.
    for (n, k) in (5..=11).flat_map(|n| (2..n - 1).step_by(2).map(move |k| (n, k))) {
        let graph = Graph::new(&Parameters::insecure(n, k, 2).unwrap(), &[3; 32]);
        let neighbours = neighbourhoods(&graph, n);
        for bad in 0..n - 1 {
            let all = exact::choose(n, bad) as f64;
            let apart =
                sets(n, bad).filter(|set| !is_connected(&neighbours, !set & ((1 << n) - 1))).count() as f64 / all;
            let pairs = f64::from(n * (n - k - 1)) / 2.0;
            let bound = pairs * libm::exp(ln_choose(bad, k) - ln_choose(n, k));
            assert!(apart <= bound + 1e-9, "{n} {k} {bad}: {apart} {bound}");
            for c in 0..=k {
                let exposed = |set: &u32| {
                    let honest = (0..n as usize).filter(|i| set >> i & 1 == 0);
                    honest.filter(|i| (neighbours[*i] & set).count_ones() > c).count() as f64
                };
                let expected = sets(n, bad).map(|set| exposed(&set)).sum::<f64>() / all;
                let bound = f64::from(n) * libm::exp(Hypergeometric::new(n, bad, k).ln_above(c));
                assert!(expected <= bound + 1e-9, "{n} {k} {bad} {c}: {expected} {bound}");
            }
        }
    }
}

#[test]
fn a_part_can_have_more_corrupted_than_its_share() {
    // Counted: of 40 with 4 corrupted, 20 drawn have all four in 4845 of 91390 cases.
    assert_eq!(most_corrupted_in(40, 4, 20, 4), 3);
    assert_eq!(most_corrupted_in(40, 4, 20, 5), 4);
    assert_eq!(most_corrupted_in(40, 4, 20, 1), 2);
    for (clients, corrupted, part) in [(200, 66, 50), (1000, 200, 100), (40, 4, 20), (10, 3, 10)] {
        let most = most_corrupted_in(clients, corrupted, part, 42);
        assert!(
            u64::from(most) * u64::from(clients) >= u64::from(corrupted) * u64::from(part),
            "no less than its share"
        );
        let chance = Hypergeometric::new(clients, corrupted, part).ln_above(most);
        assert!(chance <= ln_power_of_half(42) && most <= part.min(corrupted), "{clients} {corrupted} {part}: {most}");
    }
    assert_eq!(most_corrupted_in(10, 3, 10, 40), 3, "a part that is all has all");
}

#[test]
fn a_fraction_that_means_whole_clients_is_not_rounded_away() {
    let of = |fraction, clients| Assumptions::new(fraction, fraction, Adversary::Curious).most_dropped(clients);
    // Among them 0.29, of which a hundred are 28.999999999999996.
    for hundredth in 0..90 {
        let fraction = f64::from(hundredth) / 100.0;
        assert_eq!(of(fraction, 100), hundredth);
        assert_eq!(of(fraction, 1_000_000), hundredth * 10_000);
    }
    assert_eq!(of(1.0 / 3.0, 300), 100);
    assert_eq!(of(1.0 / 3.0, 299), 99);
    assert_eq!(of(0.05, 19), 0);
    assert_eq!(of(7.0, 19), 19);
    assert_eq!(of(f64::NAN, 19), 0);
}

#[test]
fn a_million_clients_are_no_trouble() {
    for (gamma, delta, adversary) in [(0.45, 0.45, Adversary::Curious), (0.3, 0.3, Adversary::SemiMalicious)] {
        let assumptions = Assumptions::new(delta, gamma, adversary);
        let parameters = Parameters::find(MOST_CLIENTS, &assumptions).unwrap();
        assert!(parameters.degree < 20_000, "{parameters:?}");
        let floor = Floor {
            clients: MOST_CLIENTS,
            survivors: 0,
            corrupted: gamma,
            dropout: delta,
            security_bits: 40,
            adversary,
        };
        assert_eq!(parameters.check_floor(&floor), Ok(()));
    }
}

#[test]
fn parts_without_a_meaning_are_refused() {
    for (n, k, t) in [(3, 2, 2), (4, 2, 2), (4, 3, 3), (100, 34, 29), (100, 99, 50), (101, 100, 100), (100, 98, 2)] {
        let parameters = Parameters::from_parts(n, k, t, None).unwrap();
        assert_eq!((parameters.clients(), parameters.degree(), parameters.threshold()), (n, k, t));
        assert_eq!(parameters.is_complete(), k == n - 1);
        assert_eq!(Parameters::insecure(n, k, t), Ok(parameters));
    }
    for (n, k, t, reason) in [
        (0, 0, 0, "the number of clients must be"),
        (2, 1, 1, "the number of clients must be"),
        (u32::MAX, 2, 2, "the number of clients must be"),
        (100, 33, 20, "the degree must be 99 (all others), or even and less than that"),
        (100, 100, 20, "the degree must be 99"),
        (100, 0, 0, "the degree must be 99"),
        (100, u32::MAX, 2, "the degree must be 99"),
        (100, 34, 1, "must be from 2 to 34, got 1"),
        (100, 34, 0, "must be from 2 to 34, got 0"),
        (100, 34, 35, "must be from 2 to 34, got 35"),
        (100, 34, u32::MAX, "must be from 2 to 34"),
    ] {
        let refused = Parameters::from_parts(n, k, t, None).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

fn floor_of(assumptions: &Assumptions) -> Floor {
    let Assumptions { dropout, corrupted, security_bits, adversary, .. } = *assumptions;
    Floor { clients: 3, survivors: 0, corrupted, dropout, security_bits, adversary }
}

#[test]
fn a_floor_takes_what_the_finder_gives_and_nothing_less() {
    let all = curious().into_iter().map(|(n, gamma, delta, _)| (n, gamma, delta, Adversary::Curious));
    let lying = semi_malicious().into_iter().map(|(n, gamma, delta, _)| (n, gamma, delta, Adversary::SemiMalicious));
    for (n, gamma, delta, adversary) in all.chain(lying) {
        {
            let assumptions = Assumptions::new(delta, gamma, adversary);
            let parameters = Parameters::find(n, &assumptions).unwrap();
            let floor = floor_of(&assumptions);
            assert_eq!(parameters.check_floor(&floor), Ok(()), "{n} {assumptions:?}");
            let lower = Parameters { threshold: parameters.threshold - 1, ..parameters };
            assert!(matches!(lower.check_floor(&floor), Err(ParameterError::Exposed { .. })), "{n} {assumptions:?}");
            if let Some(Committee { size, quorum }) = parameters.committee {
                let refused = |committee| Parameters { committee, ..parameters }.check_floor(&floor).unwrap_err();
                assert_eq!(refused(None), ParameterError::NoCommittee);
                let fewer = refused(Some(Committee { size, quorum: quorum - 1 }));
                assert!(matches!(fewer, ParameterError::TwoViews { .. }), "{n} {assumptions:?}: {fewer}");
            }
        }
    }
}

#[test]
fn a_committee_without_a_meaning_is_refused() {
    let parts = |size, quorum| Parameters::from_parts(100, 34, 29, Some(Committee { size, quorum }));
    assert!(parts(100, 51).is_ok() && parts(7, 4).is_ok() && parts(1, 1).is_ok());
    for (size, quorum) in [(101, 60), (100, 50), (100, 101), (0, 0), (0, 1), (7, 3), (u32::MAX, u32::MAX)] {
        let refused = parts(size, quorum).unwrap_err().to_string();
        assert!(refused.contains("are not enough"), "{refused}");
    }
}

#[test]
fn a_floor_refuses_too_few_clients() {
    let tiny = Parameters::from_parts(3, 2, 2, None).unwrap();
    let refused = tiny.check_floor(&Floor::default()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a sum of 3 inputs is below this device's floor of 100; the server must select more clients"
    );
    let complete = Parameters::from_parts(99, 98, 98, None).unwrap();
    assert_eq!(complete.check_floor(&Floor::default()), Err(ParameterError::FewClients { clients: 99, floor: 100 }));
    let floor = Floor { clients: 0, survivors: 0, corrupted: 0.4, dropout: 0.4, ..Floor::default() };
    let refused = tiny.check_floor(&floor).unwrap_err();
    assert_eq!(refused, ParameterError::NoCompany { clients: 3, corrupted: 1, dropped: 1 });
}

#[test]
fn a_floor_refuses_few_neighbours_and_low_thresholds() {
    let floor = Floor::default();
    let refused = |n, k, t| Parameters::from_parts(n, k, t, None).unwrap().check_floor(&floor).unwrap_err();
    assert!(matches!(refused(1000, 2, 2), ParameterError::Disconnected { gone: 150, .. }));
    assert!(matches!(refused(1000, 16, 16), ParameterError::Disconnected { .. }));
    assert!(matches!(refused(1000, 100, 2), ParameterError::Exposed { corrupted: 100, .. }));
    assert!(matches!(refused(1000, 999, 100), ParameterError::Exposed { .. }));
    let complete = Parameters::from_parts(1000, 999, 101, None).unwrap();
    assert_eq!(complete.check_floor(&floor), Ok(()));
}

/// Connectivity follows from secrecy in what is found. In what somebody proposes, with a threshold as high as can be, it does not,
/// and what a server can try is counted there too.
#[test]
fn grinding_is_counted_in_connectivity() {
    let committee = Some(Committee { size: 1000, quorum: 900 });
    let floor = Floor { corrupted: 0.1, dropout: 0.2, ..Floor::default() };
    let lying = Floor { adversary: Adversary::SemiMalicious, ..floor };
    let proposed = |degree| Parameters::from_parts(1000, degree, degree, committee).unwrap();
    assert_eq!(proposed(50).check_floor(&floor), Ok(()));
    assert!(matches!(proposed(50).check_floor(&lying), Err(ParameterError::Disconnected { .. })));
    assert_eq!(proposed(80).check_floor(&lying), Ok(()));
}

/// Every proposal for few clients: a chance of 2^-105 that is not zero does not exist among so few, so whatever passes holds for
/// certain.
#[test]
fn what_passes_the_floor_for_few_holds_for_certain() {
    let mut passed = 0;
    for (n, corrupted) in (3..=14).flat_map(|n| [0.0, 0.1, 0.2, 1.0 / 3.0, 0.45].map(|c| (n, c))) {
        let adversary = Adversary::SemiMalicious;
        let floor = Floor { clients: 0, survivors: 0, corrupted, dropout: 0.0, security_bits: 40, adversary };
        let c = part(corrupted, n);
        let graphs = (1..n).flat_map(|k| (0..=k).map(move |t| (k, t)));
        for ((k, t), m) in graphs.flat_map(|graph| (1..=n).map(move |m| (graph, m))) {
            for q in 0..=m {
                let proposed = Parameters::from_parts(n, k, t, Some(Committee { size: m, quorum: q }));
                if proposed.is_ok_and(|p| p.check_floor(&floor).is_ok()) {
                    assert!(2 * t > k + c.min(k) && 2 * q > m + c.min(m), "{n} {k} {t} {m} {q} {corrupted}");
                    passed += 1;
                }
            }
        }
    }
    assert!(passed > 5_000, "{passed}");
}

#[test]
fn a_curious_graph_is_refused_by_a_semi_malicious_floor() {
    for (n, gamma, delta, [k, t]) in curious() {
        let parameters = Parameters::from_parts(n, k, t, None).unwrap();
        let mut floor = floor_of(&Assumptions::new(delta, gamma, Adversary::Curious));
        assert_eq!(parameters.check_floor(&floor), Ok(()));
        floor.adversary = Adversary::SemiMalicious;
        // With few drop-outs the threshold of a curious graph can be high enough by itself.
        if 2 * t <= k {
            assert!(
                matches!(
                    parameters.check_floor(&floor),
                    Err(ParameterError::Exposed { .. } | ParameterError::Disconnected { .. })
                ),
                "{n} {gamma} {delta}"
            );
        }
    }
    let parameters = Parameters::from_parts(1000, 310, 251, Some(Committee { size: 1000, quorum: 700 })).unwrap();
    let floor = Floor { adversary: Adversary::SemiMalicious, corrupted: 1.0 / 3.0, ..Floor::default() };
    let refused = parameters.check_floor(&floor).unwrap_err().to_string();
    assert!(refused.contains("a semi-malicious server that controls 333 of 1000 clients"), "{refused}");
    assert!(refused.contains("the server must raise the threshold"), "{refused}");
}

#[test]
fn the_default_floor_takes_what_a_deployment_plans_for() {
    let lying = semi_malicious().into_iter().map(|(n, gamma, delta, [k, t, ..])| (n, gamma, delta, [k, t]));
    for (n, gamma, delta, [k, t]) in curious().into_iter().chain(lying).filter(|row| row.0 >= 100) {
        let parameters = Parameters::from_parts(n, k, t, None).unwrap();
        if gamma >= 0.1 {
            assert_eq!(parameters.check_floor(&Floor::default()), Ok(()), "{n} {gamma} {delta}");
        }
        assert_eq!(parameters.check_floor(&Floor::none()), Ok(()));
    }
    for (n, k, t) in [(3, 2, 2), (50, 8, 5), (1000, 2, 2), (MOST_CLIENTS, MOST_CLIENTS - 1, 2)] {
        assert_eq!(Parameters::insecure(n, k, t).unwrap().check_floor(&Floor::none()), Ok(()));
    }
}

#[test]
fn an_adversary_has_a_name_and_a_rank() {
    for adversary in ADVERSARIES {
        assert_eq!(adversary.to_string().parse(), Ok(adversary));
    }
    assert!(Adversary::SemiMalicious > Adversary::Curious);
    assert_eq!("semi-malicious".parse(), Ok(Adversary::SemiMalicious));
    for wrong in ["", "Curious", "semimalicious", "malicious", " curious"] {
        assert_eq!(wrong.parse::<Adversary>(), Err(UnknownAdversary(wrong.to_string())));
    }
    assert!("x".repeat(1000).parse::<Adversary>().unwrap_err().to_string().len() < 200);
}

#[test]
fn a_device_asks_for_the_stricter_of_its_floor_and_the_offer() {
    let floor = Floor { corrupted: 0.2, dropout: 0.01, security_bits: 60, ..Floor::default() };
    let offer = Assumptions { security_bits: 50, ..Assumptions::new(0.1, 0.1, Adversary::SemiMalicious) };
    let both = floor.raised_to(&offer);
    assert_eq!((both.corrupted, both.dropout, both.security_bits), (0.2, 0.1, 60));
    assert_eq!(
        (both.adversary, both.clients, both.survivors),
        (Adversary::SemiMalicious, floor.clients, floor.survivors)
    );
    assert_eq!(
        floor.raised_to(&Assumptions { security_bits: 1, ..Assumptions::new(0.0, 0.0, Adversary::Curious) }),
        floor
    );
}

/// Every pair of half-windows of small rings, counted: the corrupted ones in it are as many as is said, as often.
#[test]
fn the_bound_on_half_windows_holds_for_every_ring_that_can_be_counted() {
    for (n, k) in (5..=11).flat_map(|n| (2..n - 1).step_by(2).map(move |k| (n, k))) {
        let window = |from: u32| (0..k / 2).fold(0_u32, |set, i| set | 1 << ((from + i) % n));
        // The second begins behind the first and a gap, and ends before another gap.
        let pairs: std::collections::BTreeSet<u32> = (0..n)
            .flat_map(|a| (k / 2 + 1..n - k / 2).map(move |gap| (a, (a + gap) % n)))
            .map(|(a, b)| window(a) | window(b))
            .collect();
        for bad in 0..n - 1 {
            let all = exact::choose(n, bad) as f64;
            for c in 0..=k {
                let crowded = |set: &u32| pairs.iter().any(|pair| (pair & set).count_ones() > c);
                let chance = sets(n, bad).filter(crowded).count() as f64 / all;
                let adversity = Adversity {
                    clients: n,
                    corrupted: bad,
                    dropped: 0,
                    security_bits: 0,
                    adversary: Adversary::SemiMalicious,
                };
                let bound = libm::exp(adversity.ln_pairs(k) + Hypergeometric::new(n, bad, k).ln_above(c));
                assert!(chance <= bound + 1e-9, "{n} {k} {bad} {c}: {chance} {bound}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn who_assumes_more_withstands_less(
        n in 100_u32..20_000,
        corrupted in 0.0..0.3,
        dropout in 0.0..0.2,
        less in (0.0..1.0, 0.0..1.0, 0_u32..40),
        both in any::<bool>(),
    ) {
        let adversary = if both { Adversary::SemiMalicious } else { Adversary::Curious };
        let parameters = Parameters::find(n, &Assumptions::new(dropout, corrupted, adversary)).unwrap();
        let floor = Floor { clients: n, survivors: 0, corrupted, dropout, security_bits: 40, adversary };
        prop_assert_eq!(parameters.check_floor(&floor), Ok(()));
        let lower = Floor {
            corrupted: corrupted * less.0,
            dropout: dropout * less.1,
            security_bits: less.2,
            adversary: Adversary::Curious,
            ..floor
        };
        prop_assert_eq!(parameters.check_floor(&lower), Ok(()));
        // What a lower assumption needs is never more.
        let fewer = Assumptions::new(lower.dropout, lower.corrupted, Adversary::Curious);
        prop_assert!(Parameters::find(n, &fewer).unwrap().degree <= parameters.degree);
    }

    #[test]
    fn a_higher_threshold_is_never_less_secret(
        k in 1_u32..400,
        t in 2_u32..800,
        n in 801_u32..5000,
        corrupted in 0.0..0.9,
    ) {
        let floor = Floor { corrupted, dropout: 0.0, ..Floor::default() };
        for adversary in ADVERSARIES {
            let floor = Floor { adversary, ..floor };
            let check = |t| Parameters::from_parts(n, 2 * k, t, Some(Committee { size: n, quorum: n })).map(|p| p.check_floor(&floor).is_ok());
            if let (Ok(low), Ok(high)) = (check(t), check(t + 1)) {
                prop_assert!(high || !low);
            }
        }
    }

    #[test]
    fn nothing_panics(
        [n, k, t, bits] in any::<[u32; 4]>(),
        [corrupted, dropout] in any::<[f64; 2]>(),
        sane in 0.0..0.9,
    ) {
        let floor = Floor { clients: 0, survivors: 0, corrupted, dropout, security_bits: bits, adversary: Adversary::SemiMalicious };
        for n in [n, n % 200, n % 2000] {
            for k in [k, k % 200, n.wrapping_sub(1)] {
                for t in [t, t % 200] {
                    if let Ok(parameters) = Parameters::from_parts(n, k, t, None) {
                        let _ = parameters.check_floor(&floor);
                        let sane = Floor { corrupted: sane, dropout: 0.1, security_bits: 40, ..floor };
                        let _ = parameters.check_floor(&sane);
                    }
                }
            }
            for (dropout, corrupted) in [(dropout, corrupted), (sane / 2.0, sane / 2.0)] {
                let assumptions = Assumptions::new(dropout, corrupted, Adversary::Curious);
                let _ = Parameters::find(n, &assumptions);
                let _ = Parameters::find(n, &Assumptions { security_bits: bits, failure_bits: bits, ..assumptions });
            }
        }
    }
}
