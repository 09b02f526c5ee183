//! Of those who speak, whom people are told of: a few, however many speak at once.

use crate::command::PersonKey;
use crate::limits::SPEAKERS_TOLD;

/// Whom people were told of last.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<PersonKey>);

impl Told {
    /// Whom to tell of now, loudest first; None: of the same as last time. Who was told of stays as long as they speak, so
    /// that many who are about as loud do not take turns.
    pub(super) fn choose(&mut self, speakers: &[(PersonKey, u8)]) -> Option<Vec<(PersonKey, u8)>> {
        let people = speakers.iter().map(|(person, _)| *person);
        let (mut chosen, new): (Vec<_>, Vec<_>) =
            people.partition(|person| self.0.binary_search(person).is_ok());
        chosen.extend(new);
        chosen.truncate(SPEAKERS_TOLD);
        chosen.sort_unstable();
        if self.0 == chosen {
            return None;
        }
        self.0 = chosen;
        let told = speakers.iter().filter(|(person, _)| self.0.binary_search(person).is_ok());
        Some(told.copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speak(people: impl IntoIterator<Item = (u64, u8)>) -> Vec<(PersonKey, u8)> {
        let mut speakers: Vec<_> =
            people.into_iter().map(|(person, level)| (PersonKey(person), level)).collect();
        speakers.sort_unstable_by_key(|(person, level)| (*level, *person));
        speakers
    }

    #[test]
    fn the_loudest_are_told_and_stay_while_they_speak() {
        let mut told = Told::default();
        let all = 0..3 * SPEAKERS_TOLD as u64;
        let by_number = speak(all.clone().map(|person| (person, person as u8)));
        let first = told.choose(&by_number).expect("they are new");
        assert_eq!(first, by_number[..SPEAKERS_TOLD]);
        let turned = speak(all.map(|person| (person, 100 - person as u8)));
        assert_eq!(told.choose(&turned), None, "the same people, although others are louder now");
        let without_one = speak(turned.iter().map(|(p, l)| (p.0, *l)).filter(|(p, _)| *p != 3));
        let next = told.choose(&without_one).expect("one is silent");
        assert_eq!(next.len(), SPEAKERS_TOLD);
        assert_eq!(
            next[0],
            (PersonKey(3 * SPEAKERS_TOLD as u64 - 1), without_one[0].1),
            "loudest first"
        );
        assert!(
            first.iter().filter(|(p, _)| p.0 != 3).all(|(p, _)| next.iter().any(|(n, _)| n == p))
        );
        assert_eq!(told.choose(&[]), Some(vec![]));
    }
}
