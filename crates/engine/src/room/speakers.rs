//! Of those who speak, whom people are told of: a few, however many speak at once.

use crate::command::PersonKey;
use crate::limits::SPEAKERS_TOLD;

/// Whom people were told of last, with their levels in −dBov.
#[derive(Debug, Default)]
pub(super) struct Told(Vec<(PersonKey, u8)>);

impl Told {
    /// Whom people were told of last, loudest first.
    pub(super) fn last(&self) -> &[(PersonKey, u8)] {
        &self.0
    }

    /// Whom to tell of now, of these speakers, loudest first; None: the same people as last time. The first `heard` of them
    /// are always told. Of the others, who was told before stays as long as they speak, so that many who are about as
    /// loud do not take turns.
    pub(super) fn choose(
        &mut self,
        speakers: &[(PersonKey, u8)],
        heard: usize,
    ) -> Option<Vec<(PersonKey, u8)>> {
        let (loudest, others) = speakers.split_at(heard.min(speakers.len()));
        let (stay, new): (Vec<_>, Vec<_>) = others.iter().partition(|speaker| self.has(speaker.0));
        let mut chosen = [loudest, &stay, &new].concat();
        chosen.truncate(SPEAKERS_TOLD);
        let same = chosen.len() == self.0.len() && chosen.iter().all(|it| self.has(it.0));
        self.0 = speakers.iter().copied().filter(|speaker| chosen.contains(speaker)).collect();
        (!same).then(|| self.0.clone())
    }

    fn has(&self, person: PersonKey) -> bool {
        self.0.iter().any(|(told, _)| *told == person)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: usize = 3;
    const MANY: u64 = 3 * SPEAKERS_TOLD as u64;

    /// These people speak, each with the level that `level` gives their number.
    fn speak(people: impl Iterator<Item = u64>, level: impl Fn(u64) -> u8) -> Vec<(PersonKey, u8)> {
        let mut speakers: Vec<_> =
            people.map(|person| (PersonKey(person), level(person))).collect();
        speakers.sort_unstable_by_key(|(person, level)| (*level, *person));
        speakers
    }

    #[test]
    fn who_is_told_stays_while_they_speak_and_the_loudest_are_always_told() {
        let mut told = Told::default();
        let all = speak(0..MANY, |person| person as u8);
        assert_eq!(told.choose(&all, HEARD).expect("they are new"), all[..SPEAKERS_TOLD]);
        // The others are louder now.
        let turned = speak(0..MANY, |person| 100 - person as u8);
        let now = told.choose(&turned, HEARD).expect("others are the loudest");
        assert_eq!(now.len(), SPEAKERS_TOLD);
        assert_eq!(now[..HEARD], turned[..HEARD]);
        assert!(
            now[HEARD..].iter().all(|(person, _)| person.0 < SPEAKERS_TOLD as u64),
            "they stay"
        );
        assert_eq!(told.choose(&turned, HEARD), None, "the same people");
        assert_eq!(told.last(), now);
        let silent = now[HEARD].0;
        let fewer = speak((0..MANY).filter(|person| *person != silent.0), |p| 100 - p as u8);
        let next = told.choose(&fewer, HEARD).expect("one is silent");
        assert_eq!(next.len(), SPEAKERS_TOLD);
        assert!(next.iter().all(|(person, _)| *person != silent));
        assert_eq!(told.choose(&[], HEARD), Some(vec![]));
    }
}
