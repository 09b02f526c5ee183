//! The universal scalability law (N. J. Gunther, "Guerrilla Capacity Planning", 2007): how much a system delivers as load
//! grows, `X(n) = λ n / (1 + σ (n − 1) + κ n (n − 1))`. σ is the share of work that waits for others, κ what each owes
//! to each other one.

/// A fit, with what it leaves over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// Delivered by one.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherence.
    pub kappa: f64,
    /// The largest difference between a point and the curve, as a share of the point.
    pub residual: f64,
    /// The largest number that was measured: beyond it the curve is a forecast.
    pub measured_to: f64,
}

impl Fit {
    /// Fits points (n, delivered); none with fewer than four different n, or where nothing was delivered.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let points: Vec<(f64, f64)> =
            points.iter().copied().filter(|(n, x)| *n >= 1.0 && *x > 0.0).collect();
        let mut numbers: Vec<f64> = points.iter().map(|(n, _)| *n).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        if numbers.len() < 4 {
            return None;
        }
        // n / X(n) is a + b (n − 1) + c n (n − 1), with a = 1/λ: least squares, each point by its share.
        // Neither b nor c is negative in the law: with what would be so left out, the fit that leaves least over.
        let ways = [[true; 3], [true, true, false], [true, false, true], [true, false, false]];
        let fits = ways.into_iter().filter_map(|used| solve(&points, used));
        let fits = fits.filter(|[a, b, c]| *a > 0.0 && *b >= 0.0 && *c >= 0.0).map(|[a, b, c]| {
            let fit = Self {
                lambda: 1.0 / a,
                sigma: b / a,
                kappa: c / a,
                residual: 0.0,
                measured_to: numbers.last().copied().unwrap_or_default(),
            };
            let over = |(n, x): &(f64, f64)| (fit.at(*n) / x - 1.0).abs();
            Self { residual: points.iter().map(over).fold(0.0, f64::max), ..fit }
        });
        fits.min_by(|one, other| one.residual.total_cmp(&other.residual))
    }

    /// What so many are given.
    pub fn at(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Where it delivers most; none: it grows without end.
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt())
    }
}

/// Least squares of `n / x` over the terms that are used, weighted by x / n; none where they do not tell them apart.
fn solve(points: &[(f64, f64)], used: [bool; 3]) -> Option<[f64; 3]> {
    let mut normal = [[0.0; 4]; 3];
    for (n, x) in points {
        let weight = x / n;
        let terms = [1.0, n - 1.0, n * (n - 1.0)].map(|term| term * weight);
        for row in 0..3 {
            for column in 0..3 {
                normal[row][column] += terms[row] * terms[column];
            }
            normal[row][3] += terms[row];
        }
    }
    for index in (0..3).filter(|index| !used[*index]) {
        normal[index] = [0.0; 4];
        (0..3).for_each(|row| normal[row][index] = 0.0);
        normal[index][index] = 1.0;
    }
    // Gauss and Jordan, with the largest pivot; columns differ by orders of magnitude, so that is relative.
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|a, b| normal[*a][column].abs().total_cmp(&normal[*b][column].abs()))?;
        normal.swap(column, pivot);
        let value = normal[column][column];
        if value.abs() < 1e-12 {
            return None;
        }
        normal[column].iter_mut().for_each(|cell| *cell /= value);
        for row in (0..3).filter(|row| *row != column) {
            let (by, from) = (normal[row][column], normal[column]);
            normal[row].iter_mut().zip(from).for_each(|(cell, from)| *cell -= by * from);
        }
    }
    Some([normal[0][3], normal[1][3], normal[2][3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(lambda: f64, sigma: f64, kappa: f64, numbers: &[f64]) -> Vec<(f64, f64)> {
        let fit = Fit { lambda, sigma, kappa, residual: 0.0, measured_to: 0.0 };
        numbers.iter().map(|n| (*n, fit.at(*n))).collect()
    }

    #[test]
    fn what_made_the_points_is_found() {
        let numbers = [1.0, 4.0, 16.0, 64.0, 128.0, 256.0];
        for (lambda, sigma, kappa) in
            [(100.0, 0.02, 0.0001), (3.0, 0.0, 0.001), (50.0, 0.1, 0.0), (7.0, 0.0, 0.0)]
        {
            let fit = Fit::of(&curve(lambda, sigma, kappa, &numbers)).unwrap();
            assert!((fit.lambda / lambda - 1.0).abs() < 0.01, "{fit:?}");
            assert!((fit.sigma - sigma).abs() < 0.002, "{fit:?}");
            assert!((fit.kappa - kappa).abs() < 0.00002, "{fit:?}");
            assert!(fit.residual < 0.01 && fit.measured_to == 256.0);
        }
        let fit = Fit::of(&curve(10.0, 0.05, 0.0005, &numbers)).unwrap();
        let peak = fit.peak().unwrap();
        assert!((40.0..50.0).contains(&peak), "{peak}");
        assert!(fit.at(peak) >= fit.at(peak * 1.2) && fit.at(peak) >= fit.at(peak / 1.2));
        assert_eq!(Fit::of(&curve(7.0, 0.0, 0.0, &numbers)).unwrap().peak(), None);
    }

    #[test]
    fn too_few_points_give_no_curve_and_what_does_not_fit_is_said() {
        assert_eq!(Fit::of(&[(1.0, 5.0), (2.0, 9.0), (2.0, 9.1), (4.0, 17.0)]), None);
        assert_eq!(Fit::of(&[]), None);
        let mut points = curve(10.0, 0.0, 0.0, &[1.0, 2.0, 4.0, 8.0]);
        points.push((16.0, 80.0));
        assert!(Fit::of(&points).unwrap().residual > 0.1);
    }
}
