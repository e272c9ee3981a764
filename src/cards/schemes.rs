//! Whose number it may be, by its first digits and its length.
//!
//! The first digits and lengths are those that the schemes' own integration guides and two collections of them give
//! (the table of "Payment card number" in the English Wikipedia, and `card-types` of braintree/credit-card-type, both as
//! of 2024), drawn together by their first digits. All check by Luhn (ISO/IEC 7812-1).

/// First digits from and to, as many as the smaller has; the lengths that are taken for a card's wherever they stand;
/// the further lengths that are a card's where something else says so.
type Scheme = (u32, u32, &'static [usize], &'static [usize]);

const SCHEMES: &[Scheme] = &[
    // Visa, with Dankort, Visa Electron and Elo's numbers among its. 13 digits are numbers of long ago.
    (4, 4, &[13, 16, 19], &[18]),
    // Mastercard.
    (51, 55, &[16], &[]),
    (2221, 2720, &[16], &[]),
    // American Express.
    (34, 34, &[15], &[]),
    (37, 37, &[15], &[]),
    // Diners Club.
    (300, 305, &[14], &[16, 19]),
    (3095, 3095, &[14], &[16, 19]),
    (36, 36, &[14], &[16, 19]),
    (38, 39, &[14], &[16, 19]),
    // Hipercard's older ones.
    (3841, 3841, &[13, 16, 19], &[]),
    // JCB, with RuPay's and LankaPay's.
    (3528, 3589, &[16, 19], &[17, 18]),
    (1800, 1800, &[], &[15]),
    (2131, 2131, &[], &[15]),
    // Discover.
    (6011, 6011, &[16, 19], &[]),
    (644, 649, &[16, 19], &[]),
    // Discover, RuPay, Elo, Verve, Troy.
    (65, 65, &[16, 19], &[18]),
    // RuPay, Hipercard, NPS, UkrCard.
    (60, 60, &[16, 19], &[13]),
    // UnionPay, with Elo's 627780.
    (62, 62, &[16, 19], &[14, 15, 17, 18]),
    (81, 82, &[16], &[17, 18, 19]),
    // Maestro, Elo, Verve, RuPay, Dankort, Switch, Solo, Laser, InstaPayment, InterPayment, Hiper, GPN, Meeza.
    (50, 50, &[16, 19], &[12, 13, 14, 15, 17, 18]),
    (56, 59, &[16, 19], &[12, 13, 14, 15, 17, 18]),
    (63, 63, &[16, 19], &[12, 13, 14, 15, 17, 18]),
    (67, 67, &[16, 19], &[12, 13, 14, 15, 17, 18]),
    (61, 61, &[19], &[12, 13, 14, 15, 16, 17, 18]),
    (66, 66, &[19], &[12, 13, 14, 15, 16, 17, 18]),
    (68, 69, &[19], &[12, 13, 14, 15, 16, 17, 18]),
    // Mir.
    (2200, 2204, &[16, 19], &[17, 18]),
    // Troy, Napas, Uzcard, Humo, mada, Belkart, ArCa, Elkart, GPN.
    (9792, 9792, &[16], &[]),
    (9704, 9704, &[16, 19], &[]),
    (8600, 8600, &[16], &[]),
    (9860, 9860, &[16], &[]),
    (9682, 9682, &[16], &[]),
    (9112, 9112, &[16], &[]),
    (9051, 9051, &[16], &[]),
    (9417, 9417, &[16], &[]),
    (1946, 1946, &[], &[16]),
    // UATP.
    (1, 1, &[], &[15]),
];

/// The fewest and the most digits of a card number.
pub const LENGTHS: std::ops::RangeInclusive<usize> = 12..=19;

/// Whether these digits are a card's. `sure`: something else says that they are a card's, so that any length that a
/// scheme has will do.
pub fn is_number(digits: &[u8], sure: bool) -> bool {
    LENGTHS.contains(&digits.len()) && luhn(digits) && is_a_schemes(digits, sure)
}

fn is_a_schemes(digits: &[u8], sure: bool) -> bool {
    SCHEMES.iter().any(|(from, to, always, further)| {
        let first = digits.iter().take(from.ilog10() as usize + 1).fold(0, |n, d| n * 10 + u32::from(*d));
        let lengths = if sure { further } else { &[][..] };
        (*from..=*to).contains(&first) && always.iter().chain(lengths).any(|length| *length == digits.len())
    })
}

/// The check digit of ISO/IEC 7812-1.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| match (i % 2, u32::from(*d)) {
            (0, n) => n,
            (_, n) if n > 4 => n * 2 - 9,
            (_, n) => n * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Whether these are an article's number: the check digit of GTIN-13, which a thirteenth of Visa's old numbers has by
/// chance too.
pub fn is_article(digits: &[u8]) -> bool {
    let weighted =
        digits.iter().rev().enumerate().map(|(i, d)| u32::from(*d) * if i % 2 == 0 { 1 } else { 3 });
    digits.len() == 13 && weighted.sum::<u32>().is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits(text: &str) -> Vec<u8> {
        text.bytes().map(|b| b - b'0').collect()
    }

    #[test]
    fn the_numbers_that_schemes_and_processors_give_out_for_tests_are_found() {
        for number in [
            "4111111111111111",
            "4222222222222",
            "4012888888881881",
            "4000000000000000006",
            "4571000000000001",
            "5555555555554444",
            "5105105105105100",
            "2223003122003222",
            "2720990000000007",
            "378282246310005",
            "341111111111111",
            "30569309025904",
            "38520000023237",
            "36227206271667",
            "36700102000000",
            "6011111111111117",
            "6011000990139424",
            "6445644564456445",
            "3530111333300000",
            "3566002020360505",
            "6200000000000005",
            "6212345678901232",
            "6205500000000000004",
            "6759649826438453",
            "5020620000000000",
            "6304000000000000",
            "6362970000457013",
            "5066991111111118",
            "6062825624254001",
            "3841001111222233334",
            "2200000000000004",
            "9792030000000000",
            "6521111111111117",
            "6074820000000007",
        ] {
            let mut number = digits(number);
            if !luhn(&number) {
                // Some of these prefixes are known, and no whole number: the check digit that belongs to it.
                let last = number.len() - 1;
                number[last] = (0..10)
                    .find(|d| {
                        number[last] = *d;
                        luhn(&number)
                    })
                    .unwrap();
            }
            assert!(is_number(&number, false), "{number:?}");
        }
    }

    #[test]
    fn lengths_that_other_numbers_have_as_well_need_a_word_beside_them() {
        for number in
            ["676770000000", "5018000000009", "501800000000000009", "180000000000002", "135412345678911"]
        {
            let mut number = digits(number);
            let last = number.len() - 1;
            number[last] = (0..10)
                .find(|d| {
                    number[last] = *d;
                    luhn(&number)
                })
                .unwrap();
            assert!(!is_number(&number, false) && is_number(&number, true), "{number:?}");
        }
        assert!(is_article(&digits("4006381333931")) && !is_article(&digits("4222222222222")));
    }
}
