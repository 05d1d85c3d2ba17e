//! Units refuse what they cannot be, in code and in JSON.

use keyhush_privacy::{
    ClipNorm, Delta, Epsilon, MinSeparation, NoiseMultiplier, Rho, SamplingRate, Sensitivity, UnitError,
};
use serde::{Serialize, de::DeserializeOwned};

/// Legal values survive JSON; illegal ones are refused by the constructor, which names unit and value, and by serde.
fn check<U>(name: &str, new: impl Fn(f64) -> Result<U, UnitError>, get: impl Fn(U) -> f64, legal: &[f64], not: &[f64])
where
    U: Serialize + DeserializeOwned + Copy + PartialEq + std::fmt::Debug,
{
    for &value in legal {
        let unit = new(value).unwrap_or_else(|e| panic!("{name} {value}: {e}"));
        assert_eq!(get(unit), value);
        let json = serde_json::to_string(&unit).expect("units serialise");
        assert_eq!(serde_json::from_str::<U>(&json).expect("what was written is read"), unit, "{name} {json}");
    }
    for &value in not.iter().chain(&[f64::NAN, f64::NEG_INFINITY]) {
        let error = new(value).expect_err("an illegal value");
        let (message, expected) = (error.to_string(), format!("{value}"));
        assert!(message.contains(name) && message.contains(&expected), "{name} {value}: {message}");
        if value.is_finite() {
            let json = serde_json::to_string(&value).expect("a number");
            let refused = serde_json::from_str::<U>(&json).expect_err("an illegal value").to_string();
            assert!(refused.contains(name), "{name} {json}: {refused}");
        }
    }
    for json in ["null", "\"1\"", "[1]", "{}", "true", "\"\"", "NaN", "1e999"] {
        assert!(serde_json::from_str::<U>(json).is_err(), "{name} {json}");
    }
}

const TINY: f64 = f64::MIN_POSITIVE;
const JUST_BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;
const INF: f64 = f64::INFINITY;

#[test]
fn each_unit_has_its_range() {
    check("delta", Delta::new, Delta::get, &[TINY, 1e-9, JUST_BELOW_ONE], &[0.0, -1e-9, 1.0, 2.0, INF]);
    check("rho", Rho::new, Rho::get, &[0.0, TINY, 0.5, 1e300], &[-TINY, -1.0, INF]);
    check("epsilon", Epsilon::new, Epsilon::get, &[0.0, TINY, 0.5, 1e300], &[-TINY, -1.0]);
    let above_zero = ([TINY, 0.5, 1e300], [0.0, -1.0, INF]);
    check("noise_multiplier", NoiseMultiplier::new, NoiseMultiplier::get, &above_zero.0, &above_zero.1);
    check("clip_norm", ClipNorm::new, ClipNorm::get, &above_zero.0, &above_zero.1);
    check("sensitivity", Sensitivity::new, Sensitivity::get, &above_zero.0, &above_zero.1);
    check(
        "sampling_rate",
        SamplingRate::new,
        SamplingRate::get,
        &[TINY, 0.5, JUST_BELOW_ONE, 1.0],
        &[0.0, -0.1, 1.0 + f64::EPSILON, INF],
    );
}

#[test]
fn an_error_says_unit_range_and_value() {
    let error = SamplingRate::new(1.5).unwrap_err();
    assert_eq!(error.to_string(), "sampling_rate must be above 0 and at most 1, got 1.5");
    let UnitError::OutOfRange { unit, got, .. } = error else { panic!("{error:?}") };
    assert_eq!((unit, got), ("sampling_rate", 1.5));
}

#[test]
fn an_infinite_epsilon_is_a_word() {
    assert_eq!(Epsilon::new(INF).unwrap(), Epsilon::INFINITE);
    assert_eq!(serde_json::to_string(&Epsilon::INFINITE).unwrap(), "\"infinity\"");
    assert_eq!(serde_json::from_str::<Epsilon>("\"infinity\"").unwrap(), Epsilon::INFINITE);
    assert_eq!(Epsilon::INFINITE.to_string(), "infinity");
    assert!(!Epsilon::INFINITE.is_finite() && Epsilon::ZERO.is_finite());
    for json in ["\"inf\"", "\"Infinity\"", "\"-infinity\"", "\"nan\""] {
        assert!(serde_json::from_str::<Epsilon>(json).is_err(), "{json}");
    }
}

/// Rule P6: no bare integer is a separation.
#[test]
fn p6_a_separation_is_written_with_its_meaning() {
    let between = MinSeparation::rounds_between(212).unwrap();
    assert_eq!(between, MinSeparation::distance(213).unwrap());
    assert_eq!((between.as_rounds_between(), between.as_distance()), (212, 213));
    assert_eq!(serde_json::to_string(&between).unwrap(), r#"{"rounds_between":212}"#);
    for json in [r#"{"rounds_between":212}"#, r#"{"distance":213}"#] {
        assert_eq!(serde_json::from_str::<MinSeparation>(json).unwrap(), between, "{json}");
    }
    for json in ["212", r#"{"distance":0}"#, r#"{"distance":-1}"#, r#"{"rounds":3}"#, "{}", r#"{"distance":1.5}"#] {
        assert!(serde_json::from_str::<MinSeparation>(json).is_err(), "{json}");
    }
    assert!(serde_json::from_str::<MinSeparation>(r#"{"rounds_between":1,"distance":9}"#).is_err());
    assert!(serde_json::from_str::<MinSeparation>(&format!(r#"{{"rounds_between":{}}}"#, u64::MAX)).is_err());

    assert_eq!(MinSeparation::distance(0).unwrap_err(), UnitError::Zero { unit: "distance", got: 0 });
    assert!(MinSeparation::rounds_between(u64::MAX).is_err());
    assert_eq!(MinSeparation::rounds_between(0).unwrap().as_distance(), 1);
    let last = MinSeparation::rounds_between(u64::MAX - 1).unwrap();
    assert_eq!(serde_json::from_str::<MinSeparation>(&serde_json::to_string(&last).unwrap()).unwrap(), last);
}
