//! Tables for every rule of the decision, and properties over random histories.

mod fixture;
mod indexed;
mod rules;
mod scenarios;
